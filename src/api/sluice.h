/* Sluice in C: run a GGUF language model inside a memory budget that you set in bytes.
 *
 *   sluice_engine *engine;
 *   sluice_session *session;
 *   sluice_load("model.gguf", NULL, &engine);
 *   sluice_session_create(engine, &session);
 *   sluice_generate(session, "Once upon a time", SLUICE_TERMINATED, &options, NULL);
 *
 * An engine is a loaded model. A session is a token sequence with its KV cache.
 *
 * Errors. Functions that can fail return a status: SLUICE_OK (0) or one of the codes below, whose
 * meanings never change. sluice_last_error() then returns a one-sentence message. Null or invalid
 * arguments, and calls at the wrong time, are SLUICE_INVALID_ARGUMENT. After an error, output
 * arguments are unchanged unless stated otherwise, and handles remain usable. An engine whose
 * weights could not be read is the exception: later calls that compute fail.
 *
 * Threads. Any thread may call any function. An engine and its sessions run one call at a time; a
 * second call waits for the first. Three kinds of calls never wait: queries of an engine (info,
 * statistics, memory map, tokenizing, detokenizing and chat), sluice_session_cancel, and functions
 * without an engine or a session. A callback may call only these on its own engine; others return
 * SLUICE_INVALID_ARGUMENT. Never free a handle that another thread is using: the library cannot
 * detect it.
 *
 * Ownership. The caller frees every handle, in any order. An engine's memory is released when the
 * engine and all its sessions are freed. The library reads arguments only during the call, except
 * for callbacks, their user pointers and the data behind a sluice_reader.
 *
 * Units. Lengths and sizes are in bytes, times in milliseconds, rates in tokens per second. Text is
 * UTF-8. It may contain zero bytes when its length is passed; SLUICE_TERMINATED as the length means
 * that the text ends at its first zero byte.
 *
 * Results of unknown length. `out` has space for `capacity` entries, and *count receives the number
 * of entries. With a capacity of 0, only *count is written and `out` may be null. A smaller
 * capacity than needed is SLUICE_INVALID_ARGUMENT, and *count is still written.
 *
 * Structure sizes. Every structure begins with its size, which identifies the header version that
 * the program was compiled with. Later versions add members at the end. Fill options with their
 * _default function, then change them. Result structures need only their size:
 *
 *   sluice_load_options options;
 *   sluice_load_options_default(&options, sizeof options);
 *   sluice_stats stats = {.size = sizeof stats};
 */
#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define SLUICE_API
#else
#define SLUICE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_TERMINATED SIZE_MAX

/* --- errors --------------------------------------------------------------------------------- */

typedef int32_t sluice_status;
enum {
  SLUICE_OK = 0,
  SLUICE_INVALID_ARGUMENT = 1,         /* the message names the argument */
  SLUICE_NOT_GGUF = 2,                 /* not a model file */
  SLUICE_TRUNCATED = 3,                /* the file is shorter than its header says */
  SLUICE_BAD_HEADER = 4,               /* an impossible count, length, shape or offset */
  SLUICE_UNSUPPORTED_VERSION = 5,      /* unsupported GGUF version */
  SLUICE_UNSUPPORTED_ARCHITECTURE = 6, /* unsupported model family; the message names it */
  SLUICE_UNSUPPORTED_TYPE = 7,         /* unsupported quantization type; the message names it */
  SLUICE_MISSING_TENSOR = 8,           /* a required tensor is missing; the message names it */
  SLUICE_BAD_SHAPE = 9,                /* a tensor's shape contradicts the metadata */
  SLUICE_BAD_WEIGHTS = 10,             /* a tensor contains a value that is not finite */
  SLUICE_BAD_TOKENIZER = 11,           /* inconsistent vocabulary or merges */
  SLUICE_UNSUPPORTED_TOKENIZER = 12,   /* unsupported tokenizer or pre-tokenizer, named */
  SLUICE_BUDGET_TOO_SMALL = 13,        /* the message gives the smallest budget that works */
  SLUICE_OUT_OF_MEMORY = 14,           /* the operating system refused memory */
  SLUICE_PROMPT_EMPTY = 15,            /* the prompt has no tokens */
  SLUICE_PROMPT_TOO_LONG = 16,         /* longer than the context; the message gives both lengths */
  SLUICE_CONTEXT_FULL = 17,            /* no more tokens can be appended */
  SLUICE_HTTP_STATUS = 18,             /* the server returned an HTTP error; the message names it */
  SLUICE_NETWORK = 19,                 /* no connection, after all retries */
  SLUICE_NO_RANGE_SUPPORT = 20,        /* the server does not support range requests */
  SLUICE_SOURCE_CHANGED = 21,          /* the file on the server has changed */
  SLUICE_NOT_FOUND = 22,               /* no such file */
  SLUICE_IO = 23,             /* a read or write failed, or your reader returned an error */
  SLUICE_CORRUPT = 24,        /* a checksum did not match */
  SLUICE_CACHE_LOCKED = 25,   /* another process is using the cache entry */
  SLUICE_ABORTED = 26,        /* ended by a callback or sluice_session_cancel */
  SLUICE_INTERNAL = 27,       /* a bug in the library */
  SLUICE_GRAMMAR_SYNTAX = 28, /* invalid grammar or schema; the message gives the position */
  SLUICE_GRAMMAR_LEFT_RECURSION = 29, /* a left-recursive rule; the message names it */
  SLUICE_GRAMMAR_TOO_LARGE = 30,      /* more states than a grammar may have */
  SLUICE_SCHEMA_UNSUPPORTED = 31,     /* a schema keyword that cannot be enforced, named */
  SLUICE_CHAT_TEMPLATE = 32,          /* a chat template is invalid or exceeded its limits */
  SLUICE_NOT_SUPPORTED = 33,          /* the model lacks it: a picture for a text model */
  SLUICE_NOT_IN_BUILD = 34,           /* this build of the library omits it, named */
  SLUICE_MEDIA_MISSING = 35           /* a picture must be computed again: pass it once more */
};

/* The name of a status, such as "BUDGET_TOO_SMALL"; "UNKNOWN" for other numbers. Never null. */
SLUICE_API const char* sluice_status_name(sluice_status status);
/* The message of this thread's last failed call; "" if none failed. Valid until this thread's next
 * failure. Never null. */
SLUICE_API const char* sluice_last_error(void);
/* The version of the library, such as "0.1.0". */
SLUICE_API const char* sluice_version(void);

/* --- loading -------------------------------------------------------------------------------- */

typedef struct sluice_engine sluice_engine;
typedef struct sluice_session sluice_session;

/* Progress in bytes of the weights that stay in memory. A draft model is loaded first, with its own
 * total. Called in the loading thread. Return 0 to continue; any other value ends loading with
 * SLUICE_ABORTED. */
typedef int32_t (*sluice_progress_callback)(void* user, uint64_t loaded, uint64_t total);
/* Problems that are not errors, such as a cache on a full disk or a server that is tried again.
 * Called from any thread during the engine's lifetime. The text is valid during the call. */
typedef void (*sluice_warning_callback)(void* user, const char* text);

/* A LoRA adapter: a GGUF file, a PEFT directory, or the http(s) URL of a file. */
typedef struct sluice_adapter {
  const char* path;
  float scale; /* multiplies the adapter's contribution; 1: as trained */
} sluice_adapter;

typedef struct sluice_load_options {
  size_t size;            /* of this structure, in bytes */
  uint64_t memory_budget; /* bytes that the engine may use; 0: as many as the model wants */
  int32_t threads;        /* compute threads, up to 64; 0: chosen */

  /* Context length of a session in tokens. 0: the model's own, at most 4096, and less when its KV
   * cache would exceed a quarter of the budget; with KV cache eviction, as many tokens as the
   * budget has space to list. */
  int32_t n_ctx;
  /* Sessions in memory at a time, 1 (default) to 64. The budget includes the KV cache of each.
   * Without `swap_directory`, no more sessions can exist. */
  int32_t sessions;
  int32_t logits_rows;       /* for SLUICE_ALL_LOGITS: rows of logits kept, 1 (default) to 256,
                                fewer with KV cache eviction */
  int32_t structured_output; /* 1: set memory aside for constraints (grammars) from the start; 0: */
                             /* when one is first used, which plans the same budget again */
  int32_t preload;           /* 1 (default): load resident weights before returning; 0: the first
                                forward passes load them */
  const char* kernels;       /* instruction set by name, such as "avx2"; null: the best */
  const char* cache_directory; /* of the model cache; "none": no cache; null: SLUICE_CACHE, else the
                                  system's directory for caches (docs/model-cache.md) */
  sluice_progress_callback on_progress; /* null: none; called only with `preload` */
  void* progress_user;
  sluice_warning_callback on_warning; /* null: none */
  void* warning_user;

  /* KV cache type: "f16", "q8_0", "q4_0" or "q2"; "q8_0,q4_0" sets keys and values separately;
   * "auto": the best that takes at most a quarter of the budget. Null: f16. */
  const char* kv_type;
  const sluice_adapter* adapters; /* added to the weights; read until loading returns */
  size_t n_adapters;

  /* Speculative decoding: one forward pass checks several draft tokens, and the output stays the
   * same. "ngram": drafts from repeated text. "nextn": n-grams and the model's multi-token
   * prediction (MTP) head. Otherwise the path or URL of a smaller draft model with the same
   * vocabulary; memory_budget covers both models. Null: none. */
  const char* draft;
  int32_t draft_max; /* draft tokens per forward pass, up to 31; 0: chosen */

  /* What happens when the KV cache is full. "full": SLUICE_CONTEXT_FULL. "window": a sliding window
   * with attention sinks, which keeps the first and the most recent positions. "heavy-hitter": also
   * keeps the positions that received the most attention (not with q2). Null: full. */
  const char* kv_policy;
  int32_t kv_sinks;    /* first positions that window and heavy-hitter keep; -1: 4 */
  int32_t kv_capacity; /* positions in the KV cache with window and heavy-hitter; 0: n_ctx */

  /* Approximate (experimental): the share of the skippable layers to skip, least important first, 0
   * (default) to 1. Needs a file made by `sluice convert --calibrate`. */
  double skip_layers_ratio;
  /* Approximate (experimental): computes exact logits only for the tokens of the best vocabulary
   * clusters; other tokens get their cluster's logit. A number of clusters such as "8"; "exact": as
   * many as find the largest logit; "off": all tokens. Null: off, unless layers are skipped. Needs
   * a file made by `sluice convert --cluster-head`. */
  const char* head_clusters;

  /* Swaps out sessions: up to 512 can exist. When memory for a session is needed, the one that was
   * idle longest moves to a file in this directory, and it is swapped in when it is used again. Its
   * state stays bit-identical. A failed read or write is SLUICE_IO and leaves every session
   * unchanged. No other process can open the files; they disappear with this one. The directory is
   * created if it is missing. Null: no swapping. */
  const char* swap_directory;
  /* Approximate (experimental): confidence at which a token skips its remaining layers, 0 to 1
   * (default 1: never). Needs a file made by `sluice convert --calibrate`. */
  double early_exit;

  /* What servers ask for. It is never printed or stored, and no redirect takes it to another
   * server. Each header is "Name: value", sent to the server of the model. */
  const char* const* headers; /* read until loading returns */
  size_t n_headers;
  const char* token;       /* of Hugging Face, sent to its server only; null: HF_TOKEN */
  const char* hf_endpoint; /* URL of the Hugging Face hub or a mirror; null: HF_ENDPOINT, else
                              https://huggingface.co */
  /* A vision projector (mmproj GGUF file or URL), with which the model takes pictures; null: none.
   * It is read within the budget, while a prompt with pictures is computed. */
  const char* projector;
  int32_t time_breakdown; /* 1: measure where forward passes take their time: sluice_stats */
} sluice_load_options;

/* Fills in the defaults: as much memory as the model wants, one session, preload. */
SLUICE_API sluice_status sluice_load_options_default(sluice_load_options* options, size_t size);

/* Loads a model: a GGUF file (the first part of a split one), a Hugging Face directory, the http(s)
 * URL of either, or "hf:owner/repo[:Q4_K_M]". `options` may be null for the defaults. Errors: those
 * of the file, the network and the memory plan. */
SLUICE_API sluice_status sluice_load(const char* path, const sluice_load_options* options,
                                     sluice_engine** engine);

/* A model file that the caller reads, instead of a path or URL. */
typedef struct sluice_reader {
  size_t size;     /* of this structure, in bytes */
  uint64_t length; /* of the GGUF file, in bytes */
  /* Reads bytes [offset, offset + length), always inside the file, into `buffer`. Return 0 after
   * reading all of them; any other value makes the engine fail with SLUICE_IO. Called from several
   * threads at a time, during the engine's lifetime. */
  int32_t (*read)(void* user, uint64_t offset, void* buffer, size_t length);
  void* user;
  int32_t serialize_reads; /* 1: one call at a time, though still from several threads */
} sluice_reader;

/* Loads a GGUF file through a reader. Options and errors as for sluice_load. */
SLUICE_API sluice_status sluice_load_reader(const sluice_reader* reader,
                                            const sluice_load_options* options,
                                            sluice_engine** engine);

/* Frees the handle. The memory is released with the last session. Null is allowed. */
SLUICE_API void sluice_engine_free(sluice_engine* engine);

/* One property of a model. `section` is null, "types" (bytes by quantization type), "plan" (bytes
 * and counts of the memory plan), "kvBytes" (bytes of the KV cache by type) or, with a budget,
 * "maxContextByKvType" (the longest context that it allows, by type; 0: none). `value` is a number,
 * text, "true" or "false". All strings are valid during the call. */
typedef void (*sluice_metadata_callback)(void* user, const char* section, const char* key,
                                         const char* value);
/* Reports the model's properties and memory plan under these options. Reads only the header and
 * loads no weights. Errors: as for sluice_load, so success means that the model will run. */
SLUICE_API sluice_status sluice_inspect(const char* path, const sluice_load_options* options,
                                        sluice_metadata_callback callback, void* user);

/* --- engine information ------------------------------------------------------------------------
 */

typedef struct sluice_info {
  size_t size;               /* of this structure, in bytes */
  const char* architecture;  /* strings are valid until the engine's handle is freed */
  const char* name;          /* of the model; "" if it has none */
  const char* kernels;       /* the instruction set in use */
  const char* chat_template; /* the model's Jinja template; null if it has none */
  int32_t n_vocab;           /* tokens in the vocabulary, and logits of a position */
  int32_t n_ctx;             /* context length of a session, in tokens */
  int32_t n_ctx_train;       /* context length that the model was trained with, in tokens */
  int32_t n_layer;
  int32_t n_embd;          /* values of an embedding; 0: the model gives none */
  int32_t n_scores;        /* scores that a reranker gives a document; 0: not a reranker */
  int32_t can_generate;    /* 1: an autoregressive model; 0: an encoder */
  int32_t bos, eos;        /* token ids; -1: none */
  int32_t threads;         /* compute threads */
  int32_t n_batch;         /* prompt tokens per forward pass */
  int32_t sessions;        /* maximum number of sessions */
  int32_t fully_resident;  /* 1: all weights stay in memory; 0: each forward pass streams some */
  uint64_t memory_budget;  /* bytes; 0: unlimited */
  uint64_t memory_total;   /* bytes that the memory plan uses */
  uint64_t memory_minimum; /* bytes: the smallest budget that loads the model with these options and
                              this context length */
  int32_t takes_pictures;  /* 1: loaded with a projector */
} sluice_info;

SLUICE_API sluice_status sluice_engine_info(const sluice_engine* engine, sluice_info* info);

typedef struct sluice_stats { /* totals since loading */
  size_t size;                /* of this structure, in bytes */
  uint64_t prompt_tokens;     /* prompt tokens computed, without those already in a session */
  uint64_t generated_tokens;
  double prompt_ms, generate_ms;    /* time for prompts, and for generation */
  double wait_ms;                   /* part of that time spent waiting for weights */
  uint64_t bytes_read;              /* weights read into the engine */
  uint64_t bytes_fetched;           /* over the network */
  uint64_t bytes_from_cache;        /* from the cache directory */
  uint64_t embedding_cache_hits;    /* token embeddings found in the embedding row cache */
  uint64_t embedding_cache_misses;  /* token embeddings read from the file instead */
  uint64_t clustered_head_rows;     /* rows of logits computed by clusters: see head_clusters */
  uint64_t clustered_head_known;    /* those rows whose largest logit is certainly the exact one */
  uint64_t clustered_head_products; /* exact logits computed for those rows */
  uint64_t early_exit_rows;         /* tokens that could skip layers: see early_exit */
  uint64_t early_exit_left;         /* those tokens that did */
  uint64_t early_exit_layers;       /* layers computed for those tokens, summed */
  uint64_t sessions_swapped;        /* sessions in files now: see swap_directory */
  uint64_t bytes_swapped_out;       /* written to swap files */
  uint64_t bytes_swapped_in;        /* read from swap files */
  /* Where the time of the model's forward passes went, with the load option time_breakdown. The
   * parts add up to forward_ms; a draft model's passes are not in it. */
  double forward_ms;
  double forward_wait_ms;        /* waiting for bytes of weights, and reading them */
  double forward_decompress_ms;  /* decompressing layers of QSF files */
  double forward_projections_ms; /* matrix multiplications before and after attention */
  double forward_ffn_ms;         /* matrix multiplications of dense feed-forward networks */
  double forward_experts_ms;     /* mixtures of experts, with their routers */
  double forward_output_ms;      /* the output head */
  double forward_attention_ms;   /* attention over the KV cache, RoPE, recurrences */
  double forward_other_ms;       /* the rest */
} sluice_stats;

/* During generation, up to date within one token. */
SLUICE_API sluice_status sluice_engine_stats(const sluice_engine* engine, sluice_stats* stats);

/* One part of the memory plan. The name is valid during the call. */
typedef void (*sluice_memory_callback)(void* user, const char* name, uint64_t bytes);
/* The memory plan by parts, which add up to sluice_info's memory_total: "pinned", "streamBuffer",
 * "smallTensors", "kv", "activations", "scratch", "tokenizer", "generation", "grammar", "adapters",
 * "nextn", "reserve", "other" and "draft", as in docs/memory.md and in `sluice info --json`. */
SLUICE_API sluice_status sluice_engine_memory(const sluice_engine* engine,
                                              sluice_memory_callback callback, void* user);

/* Sets another budget in bytes (0: as much as the model wants) for the same context length.
 * Sessions are kept, and weights that stay resident are not read again. Errors, which change
 * nothing: SLUICE_BUDGET_TOO_SMALL, SLUICE_OUT_OF_MEMORY. An engine that was loaded with a larger
 * budget may have more draft tokens and checkpoints than one that is loaded with this one, and
 * keeps them. The smallest budget that it accepts, which the error names, is then larger than
 * sluice_info.memory_minimum. */
SLUICE_API sluice_status sluice_engine_set_memory_budget(sluice_engine* engine, uint64_t budget);

/* --- tokenizing ---------------------------------------------------------------------------------
 */

enum {                           /* flags of a text, combined with | */
       SLUICE_ADD_SPECIAL = 1,   /* add the vocabulary's own tokens around a text, such as BOS */
       SLUICE_PARSE_SPECIAL = 2, /* "<|im_end|>" in the text becomes the control token */
       SLUICE_CONTINUATION = 4,  /* the text continues earlier text */
       SLUICE_LITERAL_SPANS = 8  /* text between U+FDD0 and U+FDD1 never becomes control tokens */
};

SLUICE_API sluice_status sluice_tokenize(const sluice_engine* engine, const char* text,
                                         size_t length, uint32_t flags, int32_t* out,
                                         size_t capacity, size_t* count);
/* The text of n tokens, in whole characters; invalid UTF-8 becomes U+FFFD. `skip_special_tokens` 1
 * omits control tokens, 0 includes their text. A zero byte follows if `capacity` allows; *count
 * does not include it. */
SLUICE_API sluice_status sluice_detokenize(const sluice_engine* engine, const int32_t* tokens,
                                           size_t n, int32_t skip_special_tokens, char* out,
                                           size_t capacity, size_t* count);
/* *ends becomes 1 if the token ends generation (EOS, end of turn), else 0. */
SLUICE_API sluice_status sluice_token_is_eog(const sluice_engine* engine, int32_t token,
                                             int32_t* ends);

/* --- sessions ------------------------------------------------------------------------------------
 */

/* Creates an empty session. SLUICE_INVALID_ARGUMENT if sluice_info.sessions of them exist. */
SLUICE_API sluice_status sluice_session_create(sluice_engine* engine, sluice_session** session);
/* Creates an independent copy of a session. With `swap_directory` and no memory free, the copy
 * starts in a file, and no other session is swapped out. */
SLUICE_API sluice_status sluice_session_fork(sluice_session* session, sluice_session** fork);
/* Null is allowed. Returns SLUICE_INVALID_ARGUMENT, and frees nothing, from within a callback of
 * the session's engine. */
SLUICE_API sluice_status sluice_session_free(sluice_session* session);

/* The tokens in the KV cache; their number is the session's position. The last generated token is
 * added only when something follows it. */
SLUICE_API sluice_status sluice_session_tokens(sluice_session* session, int32_t* out,
                                               size_t capacity, size_t* count);
/* Truncates the session to its first `position` tokens (0: empties it). *reached, which may be
 * null, receives the new position. It is earlier than asked for when a recurrent state cannot be
 * rewound exactly. */
SLUICE_API sluice_status sluice_session_rewind(sluice_session* session, int32_t position,
                                               int32_t* reached);

/* Size of the session's saved state, for sluice_session_save. A saved state belongs to its model
 * (metadata and weights), adapters, KV cache types and policy, and layer skipping. Budget, threads
 * and context length may differ; LongRoPE models have one rotation up to their original context
 * length and another one beyond it. */
SLUICE_API sluice_status sluice_session_state_bytes(sluice_session* session, uint64_t* bytes);
/* Copies bytes [offset, offset + length) of the saved state to `out`. All must be inside it. The
 * first save or restore reads samples of the model's weights. Errors: those of reading the model.
 */
SLUICE_API sluice_status sluice_session_save(sluice_session* session, uint64_t offset, void* out,
                                             size_t length);
/* Replaces the session's contents by a saved state. After an error the session is empty. Errors:
 * SLUICE_CORRUPT (damaged, or from another model: the message names what differs),
 * SLUICE_CONTEXT_FULL, and those of reading the model. */
SLUICE_API sluice_status sluice_session_restore(sluice_session* session, const void* data,
                                                size_t length);

/* Ends all calls that are computing on the session, swapping it in, or waiting to. Generation
 * finishes with SLUICE_FINISH_CANCELLED; other calls return SLUICE_ABORTED. Does nothing if there
 * are none. May be called from any thread and from callbacks. */
SLUICE_API sluice_status sluice_session_cancel(sluice_session* session);

/* --- generation ----------------------------------------------------------------------------------
 */

typedef struct sluice_logit_bias {
  int32_t token;
  float bias; /* added to the token's logit; minus infinity bans the token */
} sluice_logit_bias;

typedef struct sluice_sampling {
  size_t size;             /* of this structure, in bytes */
  uint64_t seed;           /* the same seed gives the same text; default: a random number */
  float temperature;       /* 0: greedy; default 0.8 */
  int32_t top_k;           /* sample from the k likeliest tokens; 0: all; default 40 */
  float top_p;             /* from the smallest set with this probability; 1: all; default 0.95 */
  float min_p;             /* minimum probability relative to the likeliest; 0: off; default 0.05 */
  float repeat_penalty;    /* divides positive logits of earlier tokens; 1 (default): off */
  float frequency_penalty; /* subtracted once per earlier occurrence; default 0 */
  float presence_penalty;  /* subtracted once if the token occurred; default 0 */
  int32_t penalty_last_n;  /* tokens that penalties look back; -1: all; default 64 */
  const sluice_logit_bias* logit_bias; /* null: none */
  size_t n_logit_bias;                 /* at most 1024 */
} sluice_sampling;

SLUICE_API sluice_status sluice_sampling_default(sluice_sampling* sampling, size_t size);

typedef struct sluice_token_logprob {
  int32_t token;
  float logprob; /* natural logarithm of the model's own probability, before sampling options */
} sluice_token_logprob;

typedef struct sluice_token_event { /* one generated token; valid during the callback */
  int32_t token;
  const char* text; /* characters completed by this token, perhaps none; zero-terminated */
  size_t length;    /* of the text, in bytes */
  float logprob;    /* if log-probabilities were requested, else 0 */
  const sluice_token_logprob* top; /* the likeliest tokens, best first */
  size_t n_top;
} sluice_token_event;

/* Called in the generating thread. Return 0 to continue; any other value ends generation with
 * SLUICE_FINISH_CANCELLED. */
typedef int32_t (*sluice_token_callback)(void* user, const sluice_token_event* piece);

enum { /* structured output; sluice_generate_options.constraint */
       SLUICE_CONSTRAINT_NONE = 0,
       SLUICE_CONSTRAINT_GBNF = 1,       /* a grammar in GBNF, llama.cpp's notation */
       SLUICE_CONSTRAINT_REGEX = 2,      /* a regular expression, anchored at both ends */
       SLUICE_CONSTRAINT_CHOICE = 3,     /* one string of a JSON array of strings */
       SLUICE_CONSTRAINT_JSON = 4,       /* any JSON value; constraint_text is not used */
       SLUICE_CONSTRAINT_JSON_SCHEMA = 5 /* JSON Schema, draft 2020-12 or 7 */
};

/* A picture: the bytes of a PNG, JPEG, WebP, BMP or GIF file, or pixels. */
typedef struct sluice_picture {
  const uint8_t* bytes;
  size_t length;          /* of the file, or width * height * 3 */
  uint32_t width, height; /* of pixels: rows of red, green, blue without padding; 0: a file */
} sluice_picture;

typedef struct sluice_generate_options {
  size_t size;                     /* of this structure, in bytes */
  const sluice_sampling* sampling; /* null: the defaults */
  int64_t max_tokens;              /* -1 (default): until the context is full */
  uint32_t prompt_flags;           /* for a prompt given as text; default SLUICE_ADD_SPECIAL |
                                      SLUICE_PARSE_SPECIAL */
  int32_t skip_special_tokens;     /* 1 (default): control tokens have no text */
  int32_t ignore_eos;              /* 1: continue after an end token; default 0 */
  int32_t logprobs;                /* likeliest tokens to report, 0 to 64; -1 (default): no
                                      log-probabilities */
  const char* const* stop;         /* strings that end generation; not part of the output */
  size_t n_stop;                   /* at most 64 */
  int32_t constraint;             /* SLUICE_CONSTRAINT_...; see the load option structured_output */
  int32_t whitespace;             /* 1: JSON may contain white space; default 0 */
  const char* constraint_text;    /* the grammar, expression, choices or schema */
  sluice_token_callback on_token; /* null: none */
  void* token_user;
  const int32_t* stop_tokens; /* tokens that end generation; not part of the output */
  size_t n_stop_tokens;       /* at most 64 */
  /* For a prompt given as text, of an engine with a projector: each "<__media__>" in it, outside of
   * literal spans, is the next picture. A picture that the session holds already is not encoded
   * again. SLUICE_NOT_SUPPORTED without a projector. */
  const sluice_picture* pictures;
  size_t n_pictures; /* at most 1024 */
} sluice_generate_options;

SLUICE_API sluice_status sluice_generate_options_default(sluice_generate_options* options,
                                                         size_t size);

enum {                             /* why generation ended */
       SLUICE_FINISH_NONE = 0,     /* there was an error */
       SLUICE_FINISH_STOP = 1,     /* an end token, a stop string, or a completed constraint */
       SLUICE_FINISH_LENGTH = 2,   /* max_tokens */
       SLUICE_FINISH_CONTEXT = 3,  /* the context is full */
       SLUICE_FINISH_CANCELLED = 4 /* by the callback or sluice_session_cancel */
};

typedef struct sluice_result {
  size_t size;        /* of this structure, in bytes */
  int32_t finish;     /* SLUICE_FINISH_... */
  int32_t stop_index; /* of the stop string that ended generation; -1: none */
  int32_t prompt_tokens;
  int32_t cached_tokens;         /* prompt tokens that the session already held */
  int32_t generated_tokens;      /* without the end token */
  double prompt_ms;              /* time to compute the prompt */
  double time_to_first_token_ms; /* 0: no token was generated */
  double generate_ms;            /* from the end of the prompt to the last token */
  double prompt_tokens_per_second,
      tokens_per_second;   /* of prompt and generation; 0 if nothing was computed */
  int32_t drafted_tokens;  /* draft tokens that were checked */
  int32_t accepted_tokens; /* draft tokens that were accepted */
  int32_t forward_passes;  /* of generation, without the prompt's */
} sluice_result;

/* Generates from a prompt, which must be the whole conversation: the session keeps the longest
 * prefix that it shares with the prompt and computes only the rest. Afterwards the session holds
 * the prompt and the output. `options` may be null for the defaults. `result` may be null; it is
 * also written if computing fails. */
SLUICE_API sluice_status sluice_generate(sluice_session* session, const char* prompt, size_t length,
                                         const sluice_generate_options* options,
                                         sluice_result* result);
/* The same for a prompt of n tokens. */
SLUICE_API sluice_status sluice_generate_tokens(sluice_session* session, const int32_t* prompt,
                                                size_t n, const sluice_generate_options* options,
                                                sluice_result* result);

/* --- chat ----------------------------------------------------------------------------------------
 */

/* One request to a chat model: the prompt that a chat template makes of messages, and a reader of
 * the response. Uses memory outside the budget. Not thread-safe: use it from one thread at a time.
 *
 *   sluice_chat_options request;
 *   sluice_chat_options_default(&request, sizeof request);
 *   request.messages = "[{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}]";
 *   sluice_chat_create(engine, &request, &chat);
 *   sluice_chat_prompt prompt = {.size = sizeof prompt};
 *   sluice_chat_get_prompt(chat, &prompt);
 *   ... copy stop, constraint and skip_special_tokens to the options of sluice_generate_tokens,
 *   whose callback passes each token to sluice_chat_push; then sluice_chat_finish ...
 */
typedef struct sluice_chat sluice_chat;

typedef struct sluice_chat_options {
  size_t size; /* of this structure, in bytes */
  /* JSON texts in the format of OpenAI's API; null: none. `messages` is required: a list of
   * messages, which are written as the template expects them. */
  const char* messages;
  const char* tools;           /* a list of functions */
  const char* tool_choice;     /* auto (default), none, required, or an object with a function */
  const char* response_schema; /* a JSON schema that the content must match */
  const char* documents;       /* a list, for templates that know documents */
  const char* variables; /* an object of template variables, such as {"enable_thinking": false} */
  const char* chat_template;     /* a Jinja template; null: the model's, or ChatML if it has none */
  int32_t add_generation_prompt; /* 1 (default): the prompt ends where the response begins */
  int32_t continue_final_message;   /* 1: the last message is the beginning of the response, and the
                                       prompt ends inside it; default 0 */
  int32_t parse_special_in_content; /* 1: "<|im_end|>" in a message becomes the control token;
                                       default 0 */
  int32_t parallel_tool_calls;      /* 1 (default); 0: at most one call */
  int32_t separate_reasoning;       /* 1 (default); 0: reasoning is part of the content */
  uint64_t id_seed; /* ids of tool calls derive from it; 0 (default): a random number */
} sluice_chat_options;

SLUICE_API sluice_status sluice_chat_options_default(sluice_chat_options* options, size_t size);

/* Renders the prompt and prepares the reader. Errors: SLUICE_INVALID_ARGUMENT for a request that is
 * not as described above, or that asks for tools which the template cannot express;
 * SLUICE_CHAT_TEMPLATE if the template is invalid, fails, or omits the text of a message;
 * SLUICE_SCHEMA_UNSUPPORTED. */
SLUICE_API sluice_status sluice_chat_create(const sluice_engine* engine,
                                            const sluice_chat_options* options, sluice_chat** chat);
/* Null is allowed. The engine may be freed before its chats. */
SLUICE_API void sluice_chat_free(sluice_chat* chat);

typedef struct sluice_chat_prompt { /* pointers are valid until the chat is freed */
  size_t size;                      /* of this structure, in bytes */
  const int32_t* tokens;            /* for sluice_generate_tokens; what a message says is text in
                                       them, never a control token */
  size_t n_tokens;
  const char* text;    /* the same as text, to show; zero-terminated */
  size_t length;       /* of the text, in bytes */
  const char* opening; /* the end of the text that is the start of the response, which the reader
                          has read already; "" if there is none */
  /* For the members of sluice_generate_options with these names. */
  const char* const* stop;
  size_t n_stop;
  int32_t constraint;          /* SLUICE_CONSTRAINT_... */
  int32_t skip_special_tokens; /* 0 if the reader needs the text of control tokens */
  const char* constraint_text; /* null: none */
  int32_t default_template; /* 1: ChatML, which the model may not know, since it has no template */
  int32_t shows_tools;      /* 1: the prompt has the name of each tool */
  /* With pictures in the messages, `tokens` is null: pass this text to sluice_generate, with these
   * prompt_flags, and with the pictures that the URLs name. Data in base64 is a data URL. */
  const char* marked_text; /* zero-terminated, with a mark for each picture */
  size_t marked_length;    /* in bytes */
  uint32_t prompt_flags;   /* for sluice_generate_options */
  const char* const* pictures;
  size_t n_pictures;
} sluice_chat_prompt;

SLUICE_API sluice_status sluice_chat_get_prompt(const sluice_chat* chat,
                                                sluice_chat_prompt* prompt);

typedef struct sluice_tool_call { /* strings are zero-terminated */
  const char* id;
  const char* name;      /* of the function */
  const char* arguments; /* JSON, as the model wrote it */
} sluice_tool_call;

/* What became known with a token. Texts add up, calls are complete. Pointers are valid until the
 * next call with the same chat. */
typedef struct sluice_chat_delta {
  size_t size;           /* of this structure, in bytes */
  const char* reasoning; /* zero-terminated, as is the content */
  size_t reasoning_length;
  const char* content;
  size_t content_length;
  const sluice_tool_call* tool_calls;
  size_t n_tool_calls;
} sluice_chat_delta;

/* Reads the text of a generated token (-1: text without control tokens). `delta` may be null. Does
 * not wait, so a sluice_token_callback may call it. SLUICE_INVALID_ARGUMENT after
 * sluice_chat_finish. */
SLUICE_API sluice_status sluice_chat_push(sluice_chat* chat, const char* text, size_t length,
                                          int32_t token, sluice_chat_delta* delta);
/* Ends the response and returns what was held back. `delta` may be null. */
SLUICE_API sluice_status sluice_chat_finish(sluice_chat* chat, sluice_chat_delta* delta);
/* The response so far as JSON: a message of the assistant with content, reasoning_content and
 * tool_calls, to be added to `messages` of the next request. Without the beginning that
 * continue_final_message gave. A zero byte follows if `capacity` allows; *count does not include
 * it. */
SLUICE_API sluice_status sluice_chat_message(const sluice_chat* chat, char* out, size_t capacity,
                                             size_t* count);

/* --- low-level decoding --------------------------------------------------------------------------
 */

enum { SLUICE_LAST_LOGITS = 0, SLUICE_ALL_LOGITS = 1 };

/* Appends n tokens to the session and computes the logits of the last one, or of all of them (at
 * most sluice_load_options.logits_rows). A model with bidirectional attention starts over with
 * these tokens. */
SLUICE_API sluice_status sluice_forward(sluice_session* session, const int32_t* tokens, size_t n,
                                        int32_t logits_mode);
/* The sluice_info.n_vocab logits of row `row` of the session's last sluice_forward (row 0 with
 * SLUICE_LAST_LOGITS). They are available until the engine computes something else or the session
 * is swapped out. */
SLUICE_API sluice_status sluice_logits(sluice_session* session, int32_t row, float* out,
                                       size_t capacity, size_t* count);

/* Samples tokens. Uses 8 bytes per token of the vocabulary, outside the budget. Its random sequence
 * continues from call to call. Not thread-safe: use it from one thread at a time. */
typedef struct sluice_sampler sluice_sampler;
/* `sampling` may be null for the defaults. The engine may be freed before the sampler. */
SLUICE_API sluice_status sluice_sampler_create(const sluice_engine* engine,
                                               const sluice_sampling* sampling,
                                               sluice_sampler** sampler);
/* Null is allowed. */
SLUICE_API void sluice_sampler_free(sluice_sampler* sampler);
/* Samples *token from n logits, where n is the vocabulary size. `history` holds the tokens so far,
 * for the penalties. The logits are not modified. */
SLUICE_API sluice_status sluice_sampler_sample(sluice_sampler* sampler, const float* logits,
                                               size_t n, const int32_t* history, size_t n_history,
                                               int32_t* token);

/* --- embeddings ----------------------------------------------------------------------------------
 */

enum {                            /* how token embeddings are pooled into one */
       SLUICE_POOLING_MODEL = -1, /* the model's own pooling, or the mean if it has none */
       SLUICE_POOLING_NONE = 0,   /* no pooling: one embedding per token */
       SLUICE_POOLING_MEAN = 1,
       SLUICE_POOLING_CLS = 2,
       SLUICE_POOLING_LAST = 3,
       SLUICE_POOLING_RANK = 4 /* a reranker's scores */
};

typedef struct sluice_embed_options {
  size_t size;        /* of this structure, in bytes */
  int32_t pooling;    /* SLUICE_POOLING_...; default SLUICE_POOLING_MODEL */
  int32_t normalize;  /* 1 (default): scale to length 1; not applied to scores */
  int32_t dimensions; /* keep only the first dimensions (Matryoshka); 0 (default): all */
  const char* query;  /* with SLUICE_POOLING_RANK: scores the texts for this query; null: none */
} sluice_embed_options;

SLUICE_API sluice_status sluice_embed_options_default(sluice_embed_options* options, size_t size);

/* Embeds n zero-terminated texts. Writes *count values to `out`, row after row: one row per text,
 * or per token with SLUICE_POOLING_NONE. A row has sluice_info.n_embd values, or n_scores, or the
 * requested dimensions. The session is emptied. `options` may be null for the defaults. */
SLUICE_API sluice_status sluice_embed(sluice_session* session, const char* const* texts, size_t n,
                                      const sluice_embed_options* options, float* out,
                                      size_t capacity, size_t* count);

#ifdef __cplusplus
}
#endif

#endif
