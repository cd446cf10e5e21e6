// Names and phrases that the project no longer uses, and what it says instead. scan.mjs finds them.
//
// A single word with honest uses (pass, vector, head, form, ring) is not listed alone: it is listed
// in phrases of two words or more, or for a kind of file where it can only mean the old name.
// To change a name: rename it everywhere, then add one line here.

/** Whole identifiers, in any file: code, strings, comments and documents. */
export const identifiers = {
  // TypeScript API
  cardFrom: 'gpuMinBatch',
  cardBytesPerSecond: 'gpuBytesPerSecond',
  cardKernels: 'gpuKernels',
  CardKernels: 'GpuKernels',
  NOT_ON_CARD: 'CPU_FALLBACK',
  kvKeep: 'kvSinks',
  kvSize: 'kvCapacity',
  slotBytes: 'streamSlotBytes',
  pinsAbsent: 'pinsPending',
  embeddingHeld: 'embeddingResident',
  LayerState: 'WeightUnit',
  DeviceAdvice: 'DeviceSelection',
  kvPositions: 'kvCapacity (plan), maxContextByKvType (info)',
  trainedContext: 'trainContextLength',
  tiedHead: 'tiedEmbeddings',
  addBos: 'addSpecial',
  content_special: 'parse_special_in_content',
  reusePrefix: 'cachePrompt',
  StoredModel: 'CachedModel',
  bytesStored: 'bytesCached',
  STORE_BUSY: 'CACHE_LOCKED',
  NO_TEMPLATE: 'NO_CHAT_TEMPLATE',
  ENGINE_GONE: 'WORKER_LOST',
  giveAdapters: 'stageAdapters',

  // C API and C++
  kv_keep: 'kv_sinks',
  kv_size: 'kv_capacity',
  pins_absent: 'pins_pending',
  embedding_held: 'embedding_resident',
  kv_positions: 'kv_capacity',
  trained_context: 'n_ctx_train',
  first_ms: 'time_to_first_token_ms',
  prompt_rate: 'prompt_tokens_per_second',
  generate_rate: 'tokens_per_second',
  rows_found: 'embedding_cache_hits',
  rows_read: 'embedding_cache_misses',
  head_known: 'clustered_head_*',
  head_products: 'clustered_head_*',
  form_text: 'constraint_text',
  sluice_candidate: 'sluice_token_logprob',
  sluice_fact_callback: 'sluice_metadata_callback',
  sluice_token_ends: 'sluice_token_is_eog',
  sluice_piece: 'sluice_token_event',
  sluice_piece_callback: 'sluice_token_callback',
  on_piece: 'on_token',
  SLUICE_ADD_BOS: 'SLUICE_ADD_SPECIAL',
  SLUICE_MARKED: 'SLUICE_LITERAL_SPANS',
  SLUICE_CONTINUES: 'SLUICE_CONTINUATION',
  SLUICE_STORE_BUSY: 'SLUICE_CACHE_LOCKED',
  SLUICE_TEMPLATE: 'SLUICE_CHAT_TEMPLATE',
  SLUICE_FORM_NONE: 'SLUICE_CONSTRAINT_NONE',
  SLUICE_FORM_GBNF: 'SLUICE_CONSTRAINT_GBNF',
  SLUICE_FORM_REGEX: 'SLUICE_CONSTRAINT_REGEX',
  SLUICE_FORM_CHOICE: 'SLUICE_CONSTRAINT_CHOICE',
  SLUICE_FORM_JSON: 'SLUICE_CONSTRAINT_JSON',
  SLUICE_FORM_JSON_SCHEMA: 'SLUICE_CONSTRAINT_JSON_SCHEMA',
  spill_directory: 'swap_directory',
  sessions_spilled: 'sessions_swapped',
  bytes_spilled: 'bytes_swapped_out',
  bytes_restored: 'bytes_swapped_in',
  sluice_room: 'sluice_module',
  GuessSource: 'DraftSource',
  GuessingModel: 'ModelDraftSource',
  Guesses: 'Drafts',
  ModelGuesses: 'ModelDrafts',
  kMostGuesses: 'kMaxDraftTokens',
  guess_by_ngram: 'draft_by_ngram',
  kGuess: 'kDraft',
  PassCosts: 'BatchLatency',
  Recollection: 'PromptCacheHooks',
  foretell: 'jump_forward',
  reads_whole: 'single_batch',
  until_leaving: 'tokens_until_eviction',
  leave_layers: 'offload_layers',
  leave_ring: 'evict_block',
  weight_feed: 'weight_stream',
  row_feed: 'embedding_rows',
  row_cache: 'embedding_row_cache',
  other_device: 'gpu_offload',
  pass_part: 'partial_forward',
  PassPart: 'PartialForward',
  WeightFeed: 'WeightStream',
  RowFeed: 'EmbeddingRows',
  RowCache: 'EmbeddingRowCache',
  WorkingMemory: 'ComputeBuffer',
  NarrowHead: 'ClusteredHead',
  SpillFile: 'SwapFile',

  // Metrics
  sluice_first_token_seconds: 'sluice_time_to_first_token_seconds',
  sluice_request_seconds: 'sluice_e2e_request_latency_seconds',
  sluice_queued: 'sluice_requests_waiting',
  sluice_running: 'sluice_requests_running',
  sluice_cached_tokens_total: 'sluice_prefix_cache_hit_tokens_total',
  sluice_generated_tokens_total: 'sluice_generation_tokens_total',
  sluice_spilled: 'sluice_sessions_swapped',
  sluice_spill_written_bytes_total: 'sluice_swap_out_bytes_total',
  sluice_spill_read_bytes_total: 'sluice_swap_in_bytes_total',
};

/**
 * Words inside identifiers of two words or more (findCard, guess_by_ngram, kMostBytes). `alone`: also
 * an identifier that is this word with a capital letter or a trailing underscore (Card, guesses_).
 */
export const segments = [
  { word: /^cards?$/i, alone: true, instead: 'gpu, GpuExecutor, GpuDevice' },
  { word: /^guess(es|er|ed|ing)?$/i, alone: true, instead: 'draft' },
  { word: /^timelines?$/i, alone: true, instead: 'sequence' },
  { word: /^spill(s|ed|ing)?$/i, instead: 'swap' },
  { word: /^ow(e|es|ed)$/i, instead: 'missing, pending' },
  { word: /^foretells?$/i, alone: true, instead: 'jump_forward' },
  { word: /^k(Most|Least)$/, first: true, instead: 'kMax…, kMin…' },
];

/** Options of command lines. */
export const options = {
  '--kv-keep': '--kv-sinks',
  '--kv-size': '--kv-capacity',
  '--no-grammars': '--no-structured-output',
  '--quality': '--skip-layers-ratio',
  '--no-bos': '--no-add-special',
  '--prompt-cache': '--prompt-cache-dir',
  '--spill': '--swap-dir',
  '--scene': '--replay',
  '--past-cache': '--no-page-cache',
  '--grace': '--shutdown-timeout',
  '--conversations': '--max-sessions',
  '--least-cosine': '--min-cosine',
  '--max-body': '--max-body-size',
  '--cors': '--cors-origin',
  '--queue': '--max-queue',
  '--text-file': '-f/--file',
};

/** Scripts of package.json. */
export const scripts = {
  'bench:card': 'bench:gpu',
  'bench:drafts': 'bench:speculative',
  'bench:first': 'bench:ttft',
  'bench:slots': 'bench:parallel',
};

/**
 * Words that only some files use in the old sense. `code`: comments, and strings too unless the
 * pattern starts with a quote, do not count.
 */
export const scoped = [
  // The public types of the package
  ...Object.entries({
    ring: 'streamBuffer',
    slots: 'streamSlots',
    vectors: 'smallTensors',
    passes: 'forwardPasses',
    position: 'kvTokens',
    embedding: 'embeddingLength',
    feedForward: 'feedForwardLength',
    heads: 'attentionHeads',
    headSize: 'headDim',
    vocabulary: 'vocabSize',
    card: 'gpuName',
    special: 'skipSpecialTokens (inverted)',
    marked: 'literalSpans',
    continues: 'continuation',
    quality: 'approximate.skipLayersRatio',
    grammars: 'structuredOutput',
    few: 'gemv',
    many: 'gemm',
  }).map(([word, instead]) => ({
    in: /^web\/(wire|protocol)\/(types|options)\.ts$/,
    pattern: new RegExp(`\\b${word}\\??:`),
    code: true,
    word,
    instead,
  })),
  // The public C header
  ...Object.entries({
    serial: 'serialize_reads',
    wanted: 'logits_mode',
    generates: 'can_generate',
    scores: 'n_scores',
    resident: 'fully_resident',
    vocabulary: 'n_vocab',
    trained_context: 'n_ctx_train',
    layers: 'n_layer',
    embedding: 'n_embd',
    batch: 'n_batch',
    grammars: 'structured_output',
    quality: 'skip_layers_ratio',
    head_rows: 'clustered_head_*',
    exit_rows: 'early_exit_*',
    exit_left: 'early_exit_*',
    exit_layers: 'early_exit_*',
    form: 'constraint',
  }).map(([word, instead]) => ({
    in: /^src\/api\/sluice\.h$/,
    pattern: new RegExp(`\\b(int32_t|uint64_t|double)\\s+(\\w+, )*${word}\\b`),
    code: true,
    word,
    instead,
  })),
  // Types and functions named by a plain English word
  ...Object.entries({
    Trust: 'AcceptanceStats',
    Experience: 'DraftState',
    Need: 'FileRequest',
    Want: 'FileRequestKind',
    Leaving: 'Eviction',
  }).map(([word, instead]) => ({
    in: /^(src|tests)\/.*\.(h|cpp)$/,
    pattern: new RegExp(`\\b${word}\\b`),
    code: true,
    word,
    instead,
  })),
  ...Object.entries({
    Heard: 'GenerationCallbacks',
    Ticket: 'CancelFlag',
    Left: 'HandoverState (protocol), CpuFallback (GPU executor)',
    Words: 'SplitNames',
    Same: 'AssertSameKeys',
    Ranked: 'RerankResult',
    Piece: 'GeneratedToken',
    owed: 'missingTokens',
    recall: 'restorePrefix',
  }).map(([word, instead]) => ({
    in: /^(web|examples\/browser|tests\/(web|package))\/.*\.(ts|mjs)$/,
    pattern: new RegExp(`\\b${word}\\b`),
    code: true,
    word,
    instead,
  })),
  {
    in: /^(src|tests)\/.*\.(h|cpp)$/,
    pattern: /\b(\w*Course|course_|\w+_course)\b/,
    code: true,
    word: 'Course, course_',
    instead: 'HeaderLoader, loader_',
  },
  {
    in: /^src\/hf\/.*\.(h|cpp)$/,
    pattern: /\bTurn\b/,
    code: true,
    word: 'Turn',
    instead: 'TensorTransform',
  },
  {
    in: /^src\/generate\/.*\.(h|cpp)$/,
    pattern: /\bsay\(/,
    code: true,
    word: 'say(',
    instead: 'emit_token(',
  },
  {
    in: /^src\/(generate|bindings)\/.*\.(h|cpp)$/,
    pattern: /\bcertain\w*\(?/,
    code: true,
    word: 'certain',
    instead: 'ready',
  },
  {
    in: /^src\/kv\/.*\.(h|cpp)$/,
    pattern: /\bwhole\b/,
    code: true,
    word: 'KvShape::whole',
    instead: 'bidirectional',
  },
  // Values of options, codes and events
  {
    in: /./,
    pattern: /kv[-_]?[pP]olicy['"]?[:=, ]+['"]?heavy\b(?!-hitter)/,
    word: "kvPolicy 'heavy'",
    instead: "'heavy-hitter'",
  },
  {
    in: /./,
    pattern: /['"]pinned-absent['"]/,
    word: "'pinned-absent'",
    instead: "'pinned-pending'",
  },
  { in: /./, pattern: /phase: 'stored'/, word: "phase: 'stored'", instead: "'cached'" },
  {
    in: /^(web|src|tests)\//,
    pattern: /['"]TEMPLATE['"]/,
    word: "'TEMPLATE'",
    instead: "'CHAT_TEMPLATE'",
  },
  {
    in: /./,
    pattern: /\bgrammars: (true|false)/,
    word: 'grammars: true',
    instead: 'structuredOutput',
  },
  { in: /./, pattern: /\bEngine\.store\b/, word: 'Engine.store', instead: 'Engine.modelCache' },
  {
    in: /./,
    pattern: /reasoning_format['"]?: ?['"](separate|inline)['"]/,
    word: "reasoning_format 'separate', 'inline'",
    instead: "'deepseek', 'none'",
  },
];

/** Files and directories, by path without extension and without _native, _posix, _windows, .test. */
export const files = {
  'examples/browser': {
    advice: 'error-advice',
    'talk-panel': 'chat-panel',
    'talk-list': 'conversation-list',
    talk: 'conversation',
  },
  kernels: { finite: 'finite_check' },
  'kernels/generic': { acts: 'quantize_acts', direct: 'unpacked_gemv' },
  'kernels/isa': { vocabulary: 'simd_interface' },
  'kernels/wgsl': {
    map: 'elementwise',
    tiled: 'gemm',
    tiled_codes: 'gemm_codes',
    tiled_values: 'gemm_values',
    vector: 'gemv',
    vector_codes: 'gemv_codes',
    vector_values: 'gemv_values',
    store: 'kv_store',
    keep_f16: 'kv_store_f16',
    keep_q8_0: 'kv_store_q8_0',
    route: 'moe_router',
    rotate: 'rope',
  },
  'src/bindings': {
    answering: 'generation',
    opening: 'load',
    timeline: 'sequence',
    insight: 'stats',
  },
  'src/cli': {
    output: 'atomic_file',
    bench_drafts: 'bench_speculative',
    cache_absent: 'cache_stub',
    own_text: 'calibration_text',
    exits: 'early_exit_fit',
    answer: 'generation_options',
    moments: 'imatrix_collector',
    divergence: 'kl_divergence',
    layers: 'layer_ablation',
    line_editor_absent: 'line_editor_stub',
    scoring: 'log_likelihood',
    probes: 'sensitivity_trials',
    serve_absent: 'serve_stub',
  },
  'src/convert': {
    target: 'bit_allocation',
    pieces: 'chunks',
    columns: 'error_weights',
    importance: 'imatrix',
    clusters: 'kmeans',
    qsf_front: 'qsf_header',
    substitute: 'quantized_source',
    lanes: 'row_simd',
    fit: 'scale_search',
    order: 'tensor_order',
  },
  'src/generate': { model_guesses: 'model_drafts' },
  'src/grammar': { network: 'pda', shape: 'schema_normalize', emit: 'schema_scalars' },
  'src/hf': { derived: 'tensor_transform' },
  'src/io': { http_answer: 'http_response', http_judgement: 'http_validate' },
  'src/model': {
    builder_tails: 'builder_pooling',
    head_in_order: 'clustered_head',
    skipping: 'layer_skipping',
  },
  'src/native': { spill_file: 'swap_file', derived_source: 'tensor_transform_source' },
  'src/open': { either: 'detect_source', course: 'header_loader' },
  'src/platform': { cpu: 'cpu_features', cpus: 'cpu_topology', letters: 'unicode_case' },
  'src/serve': { answer: 'response' },
  'src/session': {
    narrow_head: 'clustered_head',
    working_memory: 'compute_buffer',
    vectors: 'elementwise',
    row_cache: 'embedding_row_cache',
    row_feed: 'embedding_rows',
    observe: 'eval_callback',
    weight_check: 'finite_check',
    other_device: 'gpu_offload',
    picking: 'kv_heavy_hitter',
    kv_room: 'kv_plan',
    low_rank: 'lora',
    routing: 'moe_router',
    pass_part: 'partial_forward',
    mixing: 'recurrent_gates',
    timeline: 'sequence',
    state: 'session_state',
    speed: 'speed_estimate',
    weight_feed: 'weight_stream',
  },
  'src/tokenizer': { plain: 'literal_spans', specials: 'special_tokens', room: 'try_reserve' },
  'tests/api': { spill_test: 'swap_test' },
  'tests/bench': {
    card: 'gpu',
    slots: 'parallel',
    'slots-tab': 'parallel-tab',
    scenes: 'prompts',
    panels: 'quality-plot',
    drafts: 'speculative',
    curve: 'stream-plot',
    'first-token': 'ttft',
  },
  'tests/conformance': {
    exits_util: 'early_exit_util',
    row_cache_test: 'embedding_row_cache_test',
    answer_util: 'generation_util',
    left_layers_test: 'gpu_offload_test',
    forced_test: 'jump_forward_test',
    kv_heavy_test: 'kv_heavy_hitter_test',
    skipping_test: 'layer_skipping_test',
    pass_part_test: 'partial_forward_test',
    speed_test: 'speed_estimate_test',
  },
  'tests/kernels': { finite_test: 'finite_check_test' },
  'tests/serve': { answer_test: 'response_test' },
  'tests/unit': {
    routing_test: 'moe_router_test',
    timeline_test: 'sequence_test',
    placed_test: 'split_header_test',
    tokenizer_plain_test: 'tokenizer_literal_spans_test',
  },
  'tests/web': {
    moves: 'budget-change',
    'stored-bytes': 'cached-bytes',
    'gpu-choice': 'device-selection',
    'features-meet': 'feature-combinations',
    'gpu-split': 'gpu-layer-split',
    forgetting: 'kv-eviction',
    line: 'queue',
    timelines: 'sequences',
    opening: 'split-files',
    telling: 'story',
    'tokenizer-peer': 'tokenizer-baseline',
  },
  'web/api': { link: 'worker-client' },
  'web/gpu': {
    advice: 'auto-device',
    sample: 'cpu-benchmark',
    choice: 'device-selection',
    card: 'executor',
    steps: 'fusion',
    cache: 'kv-cache',
    split: 'layer-split',
    states: 'recurrent-states',
    feed: 'weight-upload',
  },
  'web/gpu/kernels': { products: 'matmul' },
  'web/io': { garbage: 'force-gc', 'first-contact': 'initial-request', patience: 'timeouts' },
  'web/worker': {
    running: 'generation-loop',
    opening: 'header-loader',
    line: 'queue',
    host: 'rpc-handlers',
    timelines: 'sequences',
  },
};

/** Directories, as they are written in paths. */
export const directories = {
  'web/wire': 'web/protocol',
  'tests/rooms': 'tests/layering',
  'tests/bench/peer': 'tests/bench/baselines',
  'tests/bench/card': 'tests/bench/gpu',
  'web/docs': 'docs',
};

/** Headings of documents. */
export const headings = {
  'In a page': 'Quick start (browser)',
  'In a terminal': 'Command line',
  'In a program': 'C and C++ API',
  'See it': 'Demo',
  'The rooms': 'Source layout',
  Measured: 'Benchmarks',
  'What runs': 'Models and quantization types',
};

/**
 * Phrases of two words or more, in any case of letters and across line breaks. A space stands for
 * any white space and the comment marks of a line that continues.
 */
export const phrases = [
  // GPU
  { find: 'graphics? cards?', instead: 'GPU' },
  {
    find: "(the|a|no|which|each|every|this|that|one|any|own|other|real) cards?('s)?",
    instead: 'GPU; WebGPU device; on the GPU',
  },
  { find: "(on|of|for|by|where|and|or|than|between) cards?('s)?", instead: 'GPU, GPUs' },
  { find: "cards?' ?s? (memory|name|side|own)", instead: "the GPU's" },
  { find: "card's", instead: "the GPU's" },

  // Speculative decoding
  {
    find: '(a|the|no|each|its|their|one|first|next|such|few|many) guess(es)?',
    instead: 'draft tokens',
  },
  {
    find: 'guess(es|ed|ing)? (of )?(the )?(next )?tokens?',
    instead: 'draft tokens; drafts tokens',
  },
  { find: '(that|which) guess(es)?( for it)?', instead: 'draft model' },
  { find: "head of the model's own", instead: 'multi-token prediction (MTP) head' },
  { find: "model's own head", instead: 'multi-token prediction (MTP) head' },
  { find: '(does|do|did) not pay', instead: 'does not speed up decoding' },
  { find: 'never pays', instead: 'never speeds up decoding' },

  // Structured output
  { find: 'bound to (a |one |the )?(forms?|grammars?)', instead: 'constrained by a grammar' },
  { find: 'forms? of (an |the )?answers?', instead: 'structured output; constraint' },
  { find: 'binds? an answer', instead: 'constrains the output' },

  // Batching and embeddings
  { find: 'several at once', instead: 'parallel requests, continuous batching' },
  {
    find: '(several|parallel) answers( in one pass)?',
    instead: 'parallel requests, continuous batching',
  },
  { find: 'answers in one pass', instead: 'continuous batching' },
  { find: 'vectors? of (a |the )?texts?', instead: 'embeddings' },
  { find: 'texts? to vectors', instead: 'embeddings' },
  { find: 'texts? whole', instead: 'bidirectional attention; encoder' },
  {
    find: '(reads?|writes?|written|writing) (texts? )?from left to right',
    instead: 'causal, autoregressive',
  },

  // KV cache
  { find: 'caches? (that )?forgets?', instead: 'KV cache eviction' },
  { find: 'what stays', instead: 'what is kept; attention sinks; pinned weights' },
  { find: 'types? of keys and values', instead: 'KV cache type' },
  { find: 'caches? of keys and values', instead: 'KV cache' },
  { find: '(their|its|own|kept|quantized|bytes of) keys and values', instead: 'KV cache' },
  {
    find: 'keys and values (are|is|as|in|take|stay|that|would) ?(kept|held|stored)?',
    instead: 'KV cache',
  },
  { find: 'what (a |the )?prompts? (has|have) computed', instead: 'prefix cache, prompt cache' },

  // Weights and approximations
  { find: 'weight types?', instead: 'quantization types' },
  { find: 'types? of weights?', instead: 'quantization types' },
  { find: '(leaves?|left|leaving) out', instead: 'skip (layers), omit (options)' },
  { find: '(leaves?|leaving|left) early', instead: 'early exit' },
  { find: 'clusters? of (the|an) (output )?head', instead: 'clustered output head' },
  { find: 'narrow heads?', instead: 'clustered output head' },
  { find: 'made-up', instead: 'synthetic' },
  { find: '(that|which) (is|are|lies?) nowhere', instead: 'virtual file' },

  // Modules
  {
    find: "(the|several|these|every|each|all|other|its) rooms?('s)?(?! for)",
    instead: 'module, directory',
  },

  // Turns of phrase
  { find: '(is|are|was) heard( of)?', instead: 'is reported; events' },
  { find: 'speaks? for', instead: 'reports, indicates' },
  { find: '(goes|go|going|went) back', instead: 'rewinds; is returned' },
  {
    find: '(comput|read)(e|es|ed|ing)? (it |them |all |the text )?anew',
    instead: 'recomputed; read again',
  },
  { find: '(is|are|was) not known', instead: 'unknown; unsupported' },
  { find: 'what is (not )?known', instead: 'supported, unsupported; name the thing' },
  {
    find: 'refus(e|es|ed|ing) (it |them |all )?by (its |their )?name',
    instead: 'throws an error that names it',
  },
  { find: 'by its own name', instead: 'an error that names it' },
  { find: "(the|a|its|our) peers?('s)?", instead: 'llama.cpp, wllama: the name; baseline' },
  { find: "peer's", instead: 'llama.cpp, wllama: the name' },
  { find: 'a try', instead: 'an attempt' },
  { find: 'to the bit', instead: 'bit-identical' },
  { find: 'h[eo]ld against', instead: 'compared with' },
  { find: 'natively alone', instead: 'native builds only' },
  { find: '(on )?the CPU alone', instead: 'CPU only' },
  { find: '(past|out of) the page cache', instead: 'cold page cache; without the page cache' },
  { find: "OpenAI's shapes?", instead: 'OpenAI-compatible API' },
  { find: 'cannot be this one', instead: 'say what is wrong: cannot run … on …' },
  { find: 'is left alone', instead: 'stops; is not used' },
  { find: '(owes|owed|owe|owing)', instead: 'missing, pending' },
];

/** What is not looked at. */
export const excluded = [
  {
    path: /^tests\/(data|fuzz\/corpus|words)\//,
    reason: 'fixtures of tests, and this check itself',
  },
  { path: /^(package-lock\.json|LICENSE)$/, reason: 'written by others' },
  {
    path: /^examples\/models\/(?!README)/,
    reason: 'the stories that the sample model learns from, and the programs that write them',
  },
];

/** Exact exceptions, each with its reason. `text` must occur in the line where the word is found. */
export const allowed = [
  {
    path: /^examples\/models\/README\.md$/,
    word: /^went back$/,
    text: 'Lucy went back to bed',
    reason: 'a story of the sample model, quoted',
  },
  {
    path: /^(src\/cli\/spellings\.def|tests\/tools\/usage_test\.cpp)$/,
    word: /^--prompt-cache$/,
    text: '--prompt-cache',
    reason: "llama.cpp's option, answered with ours",
  },
];

/** Terms of the field that a reader searches for: each must occur in README.md or docs/. */
export const fieldTerms = {
  'speculative decoding': /speculative decoding/i,
  'continuous batching': /continuous batching/i,
  'prefix cache': /prefix cach(e|ing)/i,
  offload: /offload/i,
  'attention sink': /attention sinks?/i,
  'ubatch or batch': /\bu?batch(es)?\b/i,
  logits: /\blogits\b/i,
  'KL divergence': /KL divergence/i,
  'time to first token': /time to first token/i,
  TTFT: /\bTTFT\b/,
  throughput: /throughput/i,
  latency: /latency/i,
  'structured output': /structured outputs?/i,
  'constrained decoding': /constrained decoding/i,
  embeddings: /\bembeddings\b/i,
  WebGPU: /\bWebGPU\b/,
  GPU: /\bGPU\b/,
  'KV cache': /\bKV cache\b/,
  'tool calling': /tool call(s|ing)?\b/i,
};
