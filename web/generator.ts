// One generation from prompt to last token, in the engine's worker. Keeps the KV cache's longest
// common prefix with the prompt, so that a follow-up prefills only what is new.

import { SluiceError } from './errors.js';
import type { Host } from './host.js';
import type { FinishReason, GenerateSpec, GenerationResult, Piece, TokenLogprob } from './protocol.js';
import { StopFilter } from './stop.js';

export class Generator {
  private readonly started = performance.now();
  private readonly filter: StopFilter;
  private text = '';
  private completion = 0;
  private lastToken = -1;

  constructor(
    private readonly host: Host,
    private readonly spec: GenerateSpec,
    private readonly ticket: { cancelled: boolean },
    private readonly emit: (pieces: Piece[]) => void,
  ) {
    this.filter = new StopFilter(spec.stop);
  }

  async run(): Promise<GenerationResult> {
    const { host, ticket } = this;
    host.begin();
    const tokens = this.promptTokens();
    if (!host.binding.setSampler(samplerJson(this.spec))) throw host.engineError();
    const cached = this.reuse(tokens);
    let finishReason: FinishReason = 'cancelled';
    let promptDone = 0;
    try {
      const complete = await this.prefill(tokens, cached);
      promptDone = performance.now();
      if (complete && this.spec.maxTokens === 0) finishReason = 'length';
      else if (complete && !ticket.cancelled) finishReason = await this.decode();
    } finally {
      this.settle();
    }
    return this.result(finishReason, tokens.length, cached, promptDone || performance.now());
  }

  private promptTokens(): Int32Array {
    const { prompt } = this.spec;
    if (prompt.length === 0) throw new SluiceError('PROMPT_EMPTY', 'The prompt is empty.');
    if (typeof prompt !== 'string') return prompt;
    return this.host.tokenize(prompt, this.spec);
  }

  /** Rewinds to what the cache shares with the prompt; at least one token is left to compute. */
  private reuse(tokens: Int32Array): number {
    const { host } = this;
    let n = 0;
    const most = this.spec.reusePrefix ? Math.min(host.history.length, tokens.length - 1) : 0;
    while (n < most && host.history[n] === tokens[n]) n++;
    host.binding.rewind(n);
    host.history.length = n;
    return n;
  }

  private async prefill(tokens: Int32Array, cached: number): Promise<boolean> {
    const { host } = this;
    const fresh = tokens.subarray(cached);
    if (!host.binding.prefill(fresh)) throw host.engineError();
    for (const token of fresh) host.history.push(token);
    host.stats.promptTokens = tokens.length;
    host.stats.cachedTokens = cached;
    let last = 0;
    const done = await host.pass(this.ticket, () => {
      const now = performance.now();
      if (now - last < 100) return;
      last = now;
      const layer = Math.max(0, host.binding.unitStates().findIndex((state) => state >= 16));
      host.progress({ phase: 'prefill', tokens: fresh.length, layer, layers: host.layers });
    });
    host.stats.promptMs = performance.now() - this.started;
    return done;
  }

  private async decode(): Promise<FinishReason> {
    const { host, spec } = this;
    const { binding } = host;
    const start = performance.now();
    let reported = start;
    host.stats.generatedTokens = 0;
    for (;;) {
      const token = binding.sample();
      if (token < 0) throw host.engineError();
      if (this.completion === 0) host.stats.timeToFirstTokenMs = performance.now() - this.started;
      if (!spec.ignoreEos && binding.isEndOfGeneration(token)) return 'stop';
      this.deliver(this.filter.push(this.piece(token)));
      const now = performance.now();
      host.stats.generatedTokens = ++this.completion;
      host.stats.generateMs = now - start;
      host.stats.tokensPerSecond = this.completion > 1 ? ((this.completion - 1) * 1000) / (now - start) : 0;
      if (this.filter.stopped !== undefined) return 'stop';
      if (this.completion >= spec.maxTokens) return 'length';
      if (now - reported > 100) {
        reported = now;
        host.progress({ phase: 'generate', tokens: this.completion, tokensPerSecond: host.stats.tokensPerSecond });
        host.publish(false);
      }
      if (!binding.prefill(Int32Array.of(token))) {
        const error = host.engineError();
        if (error.code === 'CONTEXT_FULL') return 'length';
        throw error;
      }
      host.history.push(token);
      if (!(await host.pass(this.ticket))) return 'cancelled';
    }
  }

  private piece(token: number): Piece {
    const { binding } = this.host;
    const { logprobs, special } = this.spec;
    this.lastToken = token;
    const piece: Piece = { text: binding.decodePush(token, special), token };
    if (logprobs === undefined) return piece;
    const pairs = JSON.parse(binding.topLogprobs(logprobs, token)) as [number, number][];
    const top = pairs.map(([id, logprob]): TokenLogprob => {
      return { token: id, text: binding.detokenize(Int32Array.of(id), true), logprob };
    });
    piece.logprob = top.pop()!.logprob;
    piece.topLogprobs = top;
    return piece;
  }

  private deliver(pieces: Piece[]): void {
    if (pieces.length === 0) return;
    for (const piece of pieces) this.text += piece.text;
    this.emit(pieces);
  }

  /** Leaves the engine ready for the next generation, however this one ended. */
  private settle(): void {
    const { host } = this;
    const rest = host.binding.decodeFinish();
    if (this.filter.stopped === undefined && !this.ticket.cancelled) {
      const last = rest ? this.filter.push({ text: rest, token: this.lastToken }) : [];
      this.deliver([...last, ...this.filter.finish()]);
    }
    const position = host.binding.position();
    host.binding.rewind(position);
    host.history.length = Math.min(host.history.length, position);
  }

  private result(
    finishReason: FinishReason,
    promptTokens: number,
    cachedTokens: number,
    promptDone: number,
  ): GenerationResult {
    const promptMs = promptDone - this.started;
    const generateMs = performance.now() - promptDone;
    const { completion } = this;
    return {
      text: this.text,
      finishReason,
      stopString: this.filter.stopped,
      usage: {
        promptTokens,
        cachedTokens,
        completionTokens: completion,
        totalTokens: promptTokens + completion,
      },
      timings: {
        promptMs,
        generateMs,
        timeToFirstTokenMs: this.host.stats.timeToFirstTokenMs,
        promptTokensPerSecond: ((promptTokens - cachedTokens) * 1000) / Math.max(promptMs, 1e-3),
        tokensPerSecond: this.host.stats.tokensPerSecond,
      },
    };
  }
}

/** The sampler's parameters as the binding takes them: the names of src/sample/sampler.h; it ignores the others. */
function samplerJson({ prompt: _, stop: __, maxTokens: ___, logitBias = {}, ...rest }: GenerateSpec): string {
  const params: Record<string, unknown> = { logit_bias: Object.entries(logitBias).map(([token, bias]) => [Number(token), bias]) };
  for (const [name, value] of Object.entries(rest)) params[name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)] = value;
  return JSON.stringify(params, (name, value) => {
    // What JSON cannot say would silently become a default.
    if (typeof value === 'object' || (typeof value !== 'string' && isFinite(value ?? 0))) return value;
    throw new SluiceError('INVALID_ARGUMENT', `${name} must be a number.`);
  });
}
