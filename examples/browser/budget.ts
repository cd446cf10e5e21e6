// The budget slider. Its scale is logarithmic, from the smallest budget for the model to one in
// which all of it stays in memory. The last step is "automatic": the engine chooses.

import type { ModelInfo } from 'sluice-llm';

import { byId, on } from './dom.js';
import { bytes } from './format.js';

const kSteps = 100;
const kPage = 65536;
const kMax = 3584 * 2 ** 20;

export class BudgetSlider {
  private readonly input = byId<HTMLInputElement>('budget');
  private low = 2 ** 20;
  private high = kMax;
  private exact: number | null = null;

  /** onMove: called while it moves; onSettle: when it is released. */
  constructor(onMove: () => void, onSettle: () => unknown) {
    this.input.max = String(kSteps);
    this.input.value = this.input.max;
    on(this.input, 'input', () => {
      this.exact = null;
      this.show();
      onMove();
    });
    on(this.input, 'change', onSettle);
    this.show();
  }

  /** Bytes; 0: the engine chooses. */
  get value(): number {
    if (this.exact !== null) return this.exact;
    const step = Number(this.input.value);
    if (step >= kSteps) return 0;
    const n = this.low * (this.high / this.low) ** (step / (kSteps - 1));
    return Math.min(kMax, Math.ceil(n / kPage) * kPage);
  }

  set value(n: number) {
    this.exact = n > 0 ? Math.min(kMax, n) : null;
    this.place();
    this.show();
  }

  set enabled(enabled: boolean) {
    this.input.disabled = !enabled;
  }

  /** Sets the scale for a model. The budget does not change. */
  scale({ bytes: size, plan }: ModelInfo): void {
    const { value } = this;
    const besides =
      plan.kv + plan.activations + plan.scratch + plan.tokenizer + plan.smallTensors + plan.other;
    this.low = Math.min(kMax / 2, Math.ceil(plan.minimum / kPage) * kPage);
    this.high = Math.min(kMax, Math.max(this.low * 1.2, size * 1.1 + besides));
    byId('budget-low').textContent = `min. ${bytes(this.low)}`;
    byId('budget-high').textContent = 'automatic';
    this.value = value;
  }

  private place(): void {
    if (this.exact === null) return void (this.input.value = String(kSteps));
    const step = (Math.log(this.exact / this.low) / Math.log(this.high / this.low)) * (kSteps - 1);
    this.input.value = String(Math.round(Math.min(kSteps - 1, Math.max(0, step))));
  }

  private show(): void {
    const text = this.value ? bytes(this.value) : 'automatic';
    byId('budget-value').textContent = text;
    this.input.setAttribute('aria-valuetext', text);
  }
}
