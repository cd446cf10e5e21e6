// The budget slider: even steps from the smallest budget for the model to one in which all of it
// stays in memory. The last step is "automatic": the engine chooses. Each step shows its bytes.

import type { ModelInfo } from 'sluice-llm';

import { byId, on } from './dom.js';
import { bytes } from './format.js';

const kMaxSteps = 50;
const kPage = 65536;
const kMiB = 2 ** 20;
const kMax = 3584 * kMiB;

/** What the engine takes at most without a budget: half of the device's memory. */
export function deviceBudget(): number {
  const gib = (navigator as { deviceMemory?: number }).deviceMemory;
  return gib === undefined ? 1536 * kMiB : Math.min(kMax, Math.max(512, gib * 512) * kMiB);
}

/** Whether a model file of this size stays in memory completely, with a context of usual length. */
export const fitsIn = (fileBytes: number, budget: number): boolean =>
  fileBytes * 1.1 + 64 * kMiB <= budget;

const pages = (n: number): number => Math.ceil(n / kPage) * kPage;

export class BudgetSlider {
  private readonly input = byId<HTMLInputElement>('budget');
  private low = kMiB;
  private step = kPage;
  private steps = kMaxSteps;
  private automatic = deviceBudget();
  private exact: number | null = null;
  private busy = false;

  /** onMove: called while it moves; onSettle: when it is released. */
  constructor(onMove: () => void, onSettle: () => unknown) {
    this.range(16 * kMiB, this.automatic);
    on(this.input, 'input', () => {
      this.exact = null;
      this.show();
      onMove();
    });
    on(this.input, 'change', onSettle);
  }

  /** Bytes; 0: the engine chooses. */
  get value(): number {
    if (this.exact !== null) return this.exact;
    const step = Number(this.input.value);
    return step >= this.steps ? 0 : this.low + step * this.step;
  }

  set value(n: number) {
    this.exact = n > 0 ? Math.min(kMax, n) : null;
    const step = this.exact === null ? this.steps : Math.round((this.exact - this.low) / this.step);
    this.input.value = String(this.exact === null ? step : Math.min(step, this.steps - 1));
    this.show();
  }

  /** The engine is applying the value. */
  set changing(changing: boolean) {
    this.busy = this.input.disabled = changing;
    this.show();
  }

  /** Sets the scale for a model. The budget does not change. */
  scale({ bytes: size, plan }: ModelInfo): void {
    this.automatic = Math.min(deviceBudget(), size * 1.1 + 512 * kMiB);
    this.range(plan.minimum, plan.minimum + size * 1.05);
  }

  private range(low: number, high: number): void {
    const { value } = this;
    this.low = Math.min(kMax / 2, pages(low));
    const span = Math.min(kMax, high) - this.low;
    this.step = pages(Math.max(1, span / (kMaxSteps - 1)));
    this.steps = Math.max(2, Math.ceil(span / this.step) + 1);
    this.input.max = String(this.steps);
    byId('budget-low').textContent = `min. ${bytes(this.low)}`;
    byId('budget-high').textContent = 'automatic';
    this.value = value;
  }

  private show(): void {
    const text = this.value ? bytes(this.value) : `automatic, up to ${bytes(this.automatic)}`;
    byId('budget-value').textContent = this.busy ? `${text}, changing…` : text;
    this.input.setAttribute('aria-valuetext', text);
  }
}
