// Metrics of the server in Prometheus' text format, with the names of the native server.

export class Metrics {
  readonly #counters = new Map<string, Map<string, number>>();

  constructor(private readonly now: () => Record<string, number>) {}

  add(name: string, n = 1, labels = ''): void {
    const counter = this.#counters.get(name) ?? new Map<string, number>();
    this.#counters.set(name, counter.set(labels, (counter.get(labels) ?? 0) + n));
  }

  text(): string {
    const lines: string[] = [];
    const single = (
      name: string,
      type: string,
      help: string,
      values: Iterable<[string, number]>,
    ): void => {
      lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
      for (const [labels, value] of values)
        lines.push(`${name}${labels && `{${labels}}`} ${value}`);
    };
    for (const [name, help] of Object.entries(kCounters)) {
      const labelled = name === 'sluice_requests_total' || name === 'sluice_answers_total';
      single(name, 'counter', help, this.#counters.get(name) ?? (labelled ? [] : [['', 0]]));
    }
    for (const [name, value] of Object.entries(this.now()))
      single(name, 'gauge', kGauges[name] ?? 'Set when the model was loaded.', [['', value]]);
    return `${lines.join('\n')}\n`;
  }
}

const kCounters: Record<string, string> = {
  sluice_requests_total: 'Requests by path and status.',
  sluice_answers_total: 'Answers by how they ended.',
  sluice_prompt_tokens_total: 'Prompt tokens computed.',
  sluice_prefix_cache_hit_tokens_total: 'Prompt tokens that the engine held.',
  sluice_generation_tokens_total: 'Tokens generated.',
  sluice_embedded_texts_total: 'Texts embedded.',
};
const kGauges: Record<string, string> = {
  sluice_requests_waiting: 'Requests that wait.',
  sluice_requests_running: 'Requests that are being computed.',
  sluice_connections: 'Open connections.',
};
