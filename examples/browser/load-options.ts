// What the form says about loading, and the model of the last visit.

import type { Device, ModelSource } from 'sluice-llm';

import { byId } from './dom.js';
import { wantsSchema } from './sampling.js';

const kLastModel = 'last-model';

export interface LoadOptions {
  memoryBudget?: number;
  contextLength?: number;
  threads?: number;
  device?: Device;
  structuredOutput?: boolean;
  projector?: ModelSource;
}

const chosen = (id: string): string => byId<HTMLSelectElement>(id).value;

/** `budget`: bytes; 0: the engine chooses. */
export function loadOptions(budget: number, projector?: ModelSource): LoadOptions {
  return {
    memoryBudget: budget || undefined,
    contextLength: Number(chosen('context')) || undefined,
    threads: Number(chosen('threads')) || undefined,
    device: chosen('device') as Device,
    structuredOutput: wantsSchema() || undefined,
    projector,
  };
}

export function rememberedModel(): string | null {
  try {
    return localStorage.getItem(kLastModel);
  } catch {
    return null;
  }
}

export function rememberModel(source: ModelSource): void {
  try {
    if (typeof source === 'string') localStorage.setItem(kLastModel, source);
    else localStorage.removeItem(kLastModel); // a chosen file cannot be opened again later
  } catch {
    // no storage: not remembered
  }
}
