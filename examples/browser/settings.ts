// The drawer with settings: instructions, sampling, JSON schema. Wrong settings are shown while
// they are typed, and nothing is sent with them.

import type { Engine } from 'sluice-llm';

import { isAbort, problemOf, sentence } from './error-advice.js';
import { byId, grow, on, run } from './dom.js';
import { schema, wrongField, wantsSchema } from './sampling.js';

const kCheckMs = 400;

export class Settings {
  private readonly drawer = byId<HTMLDialogElement>('settings');
  private readonly schemaField = byId<HTMLTextAreaElement>('schema');
  private engine: Engine | null = null;
  private checking: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private schemaProblem = '';

  /** `onChange`: something was edited. `onClose`: the drawer was closed. */
  constructor(
    private readonly onChange: () => void,
    onClose: () => void,
  ) {
    for (const id of ['settings-open', 'settings-fix']) on(byId(id), 'click', () => this.open());
    on(byId('settings-close'), 'click', () => this.drawer.close());
    on(this.drawer, 'click', ({ target }) => target === this.drawer && this.drawer.close());
    on(this.drawer, 'close', onClose);
    on(this.drawer, 'input', ({ target }) => {
      if (target instanceof HTMLTextAreaElement) grow(target);
      if (target === this.schemaField) this.checkSchema();
      this.show();
    });
  }

  /** Why nothing can be sent with these settings; '' if they are right. */
  get wrong(): string {
    return this.schemaProblem || wrongField();
  }

  open(): void {
    if (!this.drawer.open) this.drawer.showModal();
    for (const field of this.drawer.querySelectorAll('textarea')) grow(field);
    if (this.schemaProblem) this.schemaField.focus();
  }

  /** The engine that checks schemas; null: none. */
  use(engine: Engine | null): void {
    this.engine = engine;
    this.checkSchema();
  }

  /** Checks the JSON at once. What the engine can enforce it says itself, after a pause. */
  private checkSchema(): void {
    clearTimeout(this.timer);
    this.checking?.abort();
    this.schemaProblem = '';
    if (wantsSchema()) {
      try {
        schema();
        this.timer = setTimeout(() => run(() => this.compile()), kCheckMs);
      } catch (error) {
        this.schemaProblem = `This is not a JSON schema: ${(error as Error).message}.`;
      }
    }
    this.show();
  }

  /** Compiles the schema, if a pass of the engine costs nothing to speak of. */
  private async compile(): Promise<void> {
    const { engine } = this;
    if (!engine?.info.plan.grammar || !engine.info.plan.resident) return;
    const { signal } = (this.checking = new AbortController());
    try {
      const options = { jsonSchema: schema(), maxTokens: 0, signal };
      await engine.generate([0], options).result;
    } catch (error) {
      const problem = problemOf(error);
      if (isAbort(error) || !/^(SCHEMA|GRAMMAR|INVALID)/.test(problem.code)) return;
      this.schemaProblem = sentence(problem);
      this.show();
    }
  }

  private show(): void {
    const { wrong, schemaProblem } = this;
    this.schemaField.setAttribute('aria-invalid', String(schemaProblem !== ''));
    for (const [id, text] of [
      ['schema-wrong', schemaProblem],
      ['settings-wrong-text', wrong],
    ] as const)
      if (byId(id).textContent !== text) byId(id).textContent = text;
    byId('schema-wrong').hidden = schemaProblem === '';
    byId('settings-wrong').hidden = wrong === '';
    this.onChange();
  }
}
