// Changes the budget of the running engine to that of the slider, one change at a time. The slider
// then shows what holds: the new budget, or the old one if the change failed.

import type { Engine } from 'sluice-llm';

import { BudgetSlider } from './budget.js';
import { announce, byId } from './dom.js';
import { bytes } from './format.js';

export interface BudgetEvents {
  changed(engine: Engine): void;
  /** `before`: the budget that still holds; 0: automatic. */
  failed(error: unknown, before: number): void;
}

export class BudgetChange {
  /** The budget of the running engine as the slider has it; 0: automatic. */
  applied = 0;
  private engine: Engine | null = null;

  constructor(
    private readonly slider: BudgetSlider,
    private readonly events: BudgetEvents,
  ) {}

  async apply(engine: Engine): Promise<void> {
    this.engine = engine;
    this.slider.changing = true;
    const wanted = this.slider.value;
    try {
      await engine.setMemoryBudget(wanted || 'auto');
      if (this.engine !== engine) return;
      this.applied = wanted;
      this.events.changed(engine);
      announce(`The budget is now ${bytes(engine.info.plan.budget)}.`);
    } catch (error) {
      if (this.engine === engine) this.events.failed(error, this.applied);
    } finally {
      if (this.engine === engine) this.end(this.applied);
    }
  }

  /** Whether a change of this engine is running. */
  runs(engine: Engine): boolean {
    return this.engine === engine;
  }

  /** The engine is being unloaded: a pending change no longer matters. */
  abandon(): void {
    if (this.engine) this.end(this.slider.value);
  }

  private end(budget: number): void {
    this.engine = null;
    this.slider.changing = false;
    this.slider.value = budget;
    if (document.activeElement === document.body) byId('budget').focus();
  }
}
