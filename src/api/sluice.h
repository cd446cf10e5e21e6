/* Sluice in C: run a GGUF language model inside a memory budget that you set in bytes.
 *
 *   sluice_engine *engine;
 *   sluice_session *session;
 *   sluice_load("model.gguf", NULL, &engine);
 *   sluice_session_create(engine, &session);
 *   sluice_generate(session, "Once upon a time", SLUICE_TERMINATED, &options, NULL);
 *
 * An engine is a loaded model, a session one text with what was computed of it.
 *
 * Errors. Functions that can fail return a status, SLUICE_OK (0) or one of the codes below, which
 * never change meaning. sluice_last_error() then has one sentence for a person. Null, wrong and
 * late arguments are SLUICE_INVALID_ARGUMENT. After an error nothing is written to what pointers
 * point to, except where it says otherwise, and handles are as good as before; but an engine whose
 * weights could not be read fails from then on.
 *
 * Threads. Any thread may call any function. Calls that compute or change something take turns on
 * an engine and its sessions: a second one waits for the first. Three kinds wait for nothing: those
 * of an engine that are only asked (its info, statistics, memory map, text to tokens and back),
 * sluice_session_cancel, and those without a handle. From within a callback only these may be
 * called on the same engine; others are SLUICE_INVALID_ARGUMENT there. To free a handle while
 * another thread is in a call with it is an error that the library cannot see.
 *
 * Ownership. What a function gives out as a handle the caller frees, in any order: an engine's
 * memory returns when it and all of its sessions are freed. What the caller passes in is read
 * during the call alone, except for callbacks, their user pointers and what readers read from.
 *
 * Units. Lengths and sizes are bytes, times milliseconds, rates tokens a second. Texts are UTF-8
 * and may hold zero bytes where a length goes with them; SLUICE_TERMINATED as a length says that
 * the text ends at its first zero byte.
 *
 * Results of a length that is not known before: `out` has room for `capacity` entries, and *count
 * becomes their number. With a capacity of 0 only the number is told, and `out` may be null. A
 * capacity that is not 0 and too small is SLUICE_INVALID_ARGUMENT; *count is set all the same.
 *
 * Structures begin with their size, by which the library tells the version of this header that a
 * program was compiled with: later ones add members at the end. Options are filled with defaults
 * by their function and then changed; results need nothing but their size:
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
  SLUICE_INVALID_ARGUMENT = 1,         /* the sentence names it */
  SLUICE_NOT_GGUF = 2,                 /* the file is not a model file at all */
  SLUICE_TRUNCATED = 3,                /* the file ends before what its header promises */
  SLUICE_BAD_HEADER = 4,               /* an impossible count, length, shape or offset */
  SLUICE_UNSUPPORTED_VERSION = 5,      /* of GGUF */
  SLUICE_UNSUPPORTED_ARCHITECTURE = 6, /* a model family without an implementation, named */
  SLUICE_UNSUPPORTED_TYPE = 7,         /* a type of weights without a kernel, named */
  SLUICE_MISSING_TENSOR = 8,           /* one that the family needs, named */
  SLUICE_BAD_SHAPE = 9,                /* a tensor's shape disagrees with the metadata */
  SLUICE_BAD_WEIGHTS = 10,             /* a tensor has a value that is not a number */
  SLUICE_BAD_TOKENIZER = 11,           /* vocabulary or merges that contradict themselves */
  SLUICE_UNSUPPORTED_TOKENIZER = 12,   /* tokenizer or pre-tokenizer unknown, named */
  SLUICE_BUDGET_TOO_SMALL = 13,        /* the sentence names the smallest budget that works */
  SLUICE_OUT_OF_MEMORY = 14,           /* the platform refused memory */
  SLUICE_PROMPT_EMPTY = 15,            /* no tokens to compute */
  SLUICE_PROMPT_TOO_LONG = 16,         /* longer than the context; the sentence names both */
  SLUICE_CONTEXT_FULL = 17,            /* nothing more can be appended */
  SLUICE_HTTP_STATUS = 18,             /* the server answered with an error, named */
  SLUICE_NETWORK = 19,                 /* no connection, after all retries */
  SLUICE_NO_RANGE_SUPPORT = 20,        /* the server cannot serve parts of a file */
  SLUICE_SOURCE_CHANGED = 21,          /* the file on the server is not the one from before */
  SLUICE_NOT_FOUND = 22,               /* no such file */
  SLUICE_IO = 23,                      /* reading or writing failed, a reader of yours too */
  SLUICE_CORRUPT = 24,                 /* a checksum did not match */
  SLUICE_CACHE_LOCKED = 25,            /* another process uses the entry of the cache */
  SLUICE_ABORTED = 26,                 /* a callback or sluice_session_cancel wanted it so */
  SLUICE_INTERNAL = 27,
  SLUICE_GRAMMAR_SYNTAX = 28,         /* a grammar or schema that cannot be read, with the place */
  SLUICE_GRAMMAR_LEFT_RECURSION = 29, /* a rule that can begin with itself, named */
  SLUICE_GRAMMAR_TOO_LARGE = 30,      /* more states than a grammar may take */
  SLUICE_SCHEMA_UNSUPPORTED = 31,     /* a schema asks for what cannot be promised, named */
  SLUICE_CHAT_TEMPLATE = 32           /* a chat template that cannot be read, or took too much */
};

/* The name of a status, such as "BUDGET_TOO_SMALL"; "UNKNOWN" for other numbers. Never null. */
SLUICE_API const char* sluice_status_name(sluice_status status);
/* The sentence of the last call of this thread that failed; "" before the first. Valid until this
 * thread's next failure. Never null. */
SLUICE_API const char* sluice_last_error(void);
/* The version of the library, such as "0.1.0". */
SLUICE_API const char* sluice_version(void);

/* --- loading -------------------------------------------------------------------------------- */

typedef struct sluice_engine sluice_engine;
typedef struct sluice_session sluice_session;

/* What loading has read so far, of the weights that stay in memory; a draft's model comes first,
 * with a total of its own. Called in the thread that loads. Returns 0 to go on; any other value
 * ends loading with SLUICE_ABORTED. */
typedef int32_t (*sluice_progress_callback)(void* user, uint64_t loaded, uint64_t total);
/* What got worse without failing, such as a cache on a full disk. Called from any thread, as long
 * as the engine lives. The text is valid during the call. */
typedef void (*sluice_warning_callback)(void* user, const char* text);

/* A LoRA adapter: a GGUF file, a directory of PEFT's, or an http or https URL of a file. */
typedef struct sluice_adapter {
  const char* path;
  float scale; /* of what it adds; 1 is the adapter's own */
} sluice_adapter;

typedef struct sluice_load_options {
  size_t size;               /* of this structure, in bytes */
  uint64_t memory_budget;    /* bytes that the engine may hold; 0: all that it wants */
  int32_t threads;           /* that compute, up to 64; 0: chosen */
  int32_t n_ctx;             /* tokens of a session; 0: the model's own, at most 4096, or as many as
                                  the budget has room to list where the cache evicts */
  int32_t sessions;          /* that are in memory at a time, 1 to 64; each has its context in the
                                budget. Without `swap_directory` no more can exist */
  int32_t logits_rows;       /* tokens of a pass whose logits are kept, 1 to 256; for
                                SLUICE_ALL_LOGITS */
  int32_t structured_output; /* 1: answers may be bound to a form, which takes room in the budget */
  int32_t preload;           /* 1: returns when the weights that stay in memory are there; 0: the
                                first passes load them */
  const char* kernels;       /* an instruction set by name, such as "avx2"; null: the best */
  const char* cache_directory;          /* keeps what URLs deliver; null: nothing is kept */
  sluice_progress_callback on_progress; /* null: none; needs `preload` */
  void* progress_user;
  sluice_warning_callback on_warning; /* null: none */
  void* warning_user;
  const char* kv_type;            /* how keys and values are kept: "f16", "q8_0", "q4_0", "q2", or
                                     "q8_0,q4_0" for each apart; "auto": the best of them that
                                     the budget has room for; null: f16 */
  const sluice_adapter* adapters; /* added to the weights; needed until loading returns */
  size_t n_adapters;
  const char* draft;     /* guesses the next tokens, several of which one pass then checks; answers
                            stay the same: "ngram" (what the text repeats), "nextn" (that, and a head
                            that the file has for it), or the path or URL of a
                            smaller model of the same vocabulary, within memory_budget; null: none */
  int32_t draft_max;     /* guesses of one pass, up to 31; 0: chosen */
  const char* kv_policy; /* of a session whose cache is full: "full", an error; "window", it goes on
                            with its first and last positions; "heavy-hitter", also with those that
                            have been attended to most (not of q2); null: full */
  int32_t kv_sinks;      /* first positions that window and heavy-hitter keep; -1: 4 */
  int32_t kv_capacity;   /* positions that they have memory for; 0: the context */
  double skip_layers_ratio; /* of the layers that may be skipped, 0 (default) to 1: the least
                            important, as `sluice convert --calibrate` has measured them; not
                            without that */
  const char*
      head_clusters;          /* of a file of `sluice convert --cluster-head`: for which tokens
                                 logits are computed, those of so many clusters, such as "8", or
                                 "exact": as many as tell the largest; others get their cluster's;
                                 "off": all; null: off where no layers are skipped, else fewer with them */
  const char* swap_directory; /* made where it is missing: up to 512 sessions can exist; where a
                                  call finds no room, the one that was idle for longest goes to a
                                  file in it that nobody else can open, and comes back when it is
                                  used. What a session then holds is the same to the bit; what a
                                  file cannot take or give back is SLUICE_IO, and every session is
                                  as it was. The files are gone with the process. Null: none */
  double early_exit;          /* of a file of `sluice convert --calibrate`: how likely a token
                                 must be settled for the layers that follow to be left out, from
                                 0 to 1; 1: all layers */
} sluice_load_options;

/* Fills in the defaults: as much memory as the model wants, one session, preload. */
SLUICE_API sluice_status sluice_load_options_default(sluice_load_options* options, size_t size);

/* Loads a model: a GGUF file (of a split one the first part), a Hugging Face directory, or an http
 * or https URL of either. `options` may be null for the defaults. Errors: those of the file, the
 * network and the plan. */
SLUICE_API sluice_status sluice_load(const char* path, const sluice_load_options* options,
                                     sluice_engine** engine);

/* Where the bytes of a model come from, if not from a file or URL. */
typedef struct sluice_reader {
  size_t size;     /* of this structure, in bytes */
  uint64_t length; /* of the GGUF file, in bytes */
  /* Reads [offset, offset + length), which lies inside the file, to `buffer`. Returns 0 when all of
   * it is there; any other value makes the engine fail with SLUICE_IO. Called from several threads
   * at a time, as long as the engine lives. */
  int32_t (*read)(void* user, uint64_t offset, void* buffer, size_t length);
  void* user;
  int32_t serialize_reads; /* 1: calls one after the other, though still from several threads */
} sluice_reader;

/* The same of a GGUF file that the caller reads. */
SLUICE_API sluice_status sluice_load_reader(const sluice_reader* reader,
                                            const sluice_load_options* options,
                                            sluice_engine** engine);

/* Gives the handle back; the memory goes with the last session. Null is allowed. */
SLUICE_API void sluice_engine_free(sluice_engine* engine);

/* One thing known about a model: `section` is null or "types" (bytes by type of weights) or
 * "plan" (bytes and counts of the memory plan), `value` a number, text, "true" or "false". Texts
 * are valid during the call. */
typedef void (*sluice_metadata_callback)(void* user, const char* section, const char* key,
                                         const char* value);
/* Tells from the header alone what a model is and how the options would use memory; nothing is
 * loaded. Errors: as for sluice_load, so it says whether the model will run. The memory of a
 * draft's model is left out. */
SLUICE_API sluice_status sluice_inspect(const char* path, const sluice_load_options* options,
                                        sluice_metadata_callback callback, void* user);

/* --- what an engine says about itself ----------------------------------------------------------
 */

typedef struct sluice_info {
  size_t size;               /* of this structure, in bytes */
  const char* architecture;  /* texts are valid as long as the engine's handle */
  const char* name;          /* of the model, "" where it has none */
  const char* kernels;       /* the instruction set in use */
  const char* chat_template; /* as the model has it, in Jinja; null where it has none */
  int32_t n_vocab;           /* tokens, and logits of a position */
  int32_t n_ctx;             /* tokens of a session */
  int32_t n_ctx_train;       /* tokens that the model was trained for */
  int32_t n_layer;
  int32_t n_embd;          /* values of an embedding; 0: none */
  int32_t n_scores;        /* values that a reranker gives a text; 0: it is none */
  int32_t can_generate;    /* 1: writes from left to right; 0: reads texts whole */
  int32_t bos, eos;        /* tokens; -1: none */
  int32_t threads;         /* that compute */
  int32_t n_batch;         /* tokens of the prompt that are computed together */
  int32_t sessions;        /* that can exist at a time */
  int32_t fully_resident;  /* 1: all weights stay in memory; 0: some are read anew for each pass */
  uint64_t memory_budget;  /* bytes; 0: none was set */
  uint64_t memory_total;   /* bytes that the plan takes */
  uint64_t memory_minimum; /* bytes: the smallest budget to load it with like this */
} sluice_info;

SLUICE_API sluice_status sluice_engine_info(const sluice_engine* engine, sluice_info* info);

typedef struct sluice_stats { /* since loading */
  size_t size;                /* of this structure, in bytes */
  uint64_t prompt_tokens;     /* computed for prompts, what a session held already left out */
  uint64_t generated_tokens;
  double prompt_ms, generate_ms; /* that these took */
  double wait_ms;                /* of it, spent waiting for weights */
  uint64_t bytes_read;           /* of weights, read into the engine */
  uint64_t bytes_fetched;        /* over the network */
  uint64_t bytes_from_cache;     /* from the cache directory */
  uint64_t embedding_cache_hits; /* of a token embedding that streams, in the cache of such rows */
  uint64_t embedding_cache_misses;  /* and not in it */
  uint64_t clustered_head_rows;     /* of logits, for a part of the vocabulary: head_clusters */
  uint64_t clustered_head_known;    /* of them, those whose largest is known to be that of all */
  uint64_t clustered_head_products; /* logits that were computed for them */
  uint64_t early_exit_rows;         /* tokens that could leave before the last layer: early_exit */
  uint64_t early_exit_left;         /* of them, those that did */
  uint64_t early_exit_layers;       /* that were computed, for all of them together */
  uint64_t sessions_swapped;        /* that are in files now: swap_directory */
  uint64_t bytes_swapped_out;       /* written for that since loading */
  uint64_t bytes_swapped_in;        /* and read */
} sluice_stats;

/* Up to date within one token. */
SLUICE_API sluice_status sluice_engine_stats(const sluice_engine* engine, sluice_stats* stats);

/* One part of the memory that the engine holds. The name is valid during the call. */
typedef void (*sluice_memory_callback)(void* user, const char* name, uint64_t bytes);
/* The memory map: parts whose bytes together are sluice_info's memory_total. */
SLUICE_API sluice_status sluice_engine_memory(const sluice_engine* engine,
                                              sluice_memory_callback callback, void* user);

/* Another budget in bytes (0: as much as the model wants) for the same context; sessions live on,
 * and weights that stay are not read again. Errors, after which all is as before:
 * SLUICE_BUDGET_TOO_SMALL, SLUICE_OUT_OF_MEMORY. */
SLUICE_API sluice_status sluice_engine_set_memory_budget(sluice_engine* engine, uint64_t budget);

/* --- text and tokens ----------------------------------------------------------------------------
 */

enum {                           /* how a text becomes tokens; together by | */
       SLUICE_ADD_SPECIAL = 1,   /* the tokens that the vocabulary puts around a text */
       SLUICE_PARSE_SPECIAL = 2, /* "<|im_end|>" in the text is the control token */
       SLUICE_CONTINUATION = 4,  /* the text goes on from earlier text */
       SLUICE_LITERAL_SPANS = 8 /* what stands between U+FDD0 and U+FDD1 never is a control token */
};

SLUICE_API sluice_status sluice_tokenize(const sluice_engine* engine, const char* text,
                                         size_t length, uint32_t flags, int32_t* out,
                                         size_t capacity, size_t* count);
/* The text of n tokens, in whole characters (U+FFFD for what is none). With `skip_special_tokens` 1
 * control tokens have no text, with 0 they have. A zero byte follows where there is room for it;
 * *count leaves it out. */
SLUICE_API sluice_status sluice_detokenize(const sluice_engine* engine, const int32_t* tokens,
                                           size_t n, int32_t skip_special_tokens, char* out,
                                           size_t capacity, size_t* count);
/* *ends becomes 1 where the token ends an answer, else 0. */
SLUICE_API sluice_status sluice_token_is_eog(const sluice_engine* engine, int32_t token,
                                             int32_t* ends);

/* --- sessions ------------------------------------------------------------------------------------
 */

/* An empty session. SLUICE_INVALID_ARGUMENT where there are as many as can be: sluice_info. */
SLUICE_API sluice_status sluice_session_create(sluice_engine* engine, sluice_session** session);
/* Another session that holds the same and goes its own way from there. Where there is no room for
 * both, it begins in a file: no session has to leave for it. */
SLUICE_API sluice_status sluice_session_fork(sluice_session* session, sluice_session** fork);
/* Null is allowed. SLUICE_INVALID_ARGUMENT, and not freed, from within a callback of its engine. */
SLUICE_API sluice_status sluice_session_free(sluice_session* session);

/* The tokens that are computed; their number is the position. The last token of an answer is not
 * among them until something follows it. */
SLUICE_API sluice_status sluice_session_tokens(sluice_session* session, int32_t* out,
                                               size_t capacity, size_t* count);
/* Forgets what comes after the first `position` tokens (0: everything). *reached, which may be
 * null, becomes the position now: an earlier one where a model's state cannot go back exactly. */
SLUICE_API sluice_status sluice_session_rewind(sluice_session* session, int32_t position,
                                               int32_t* reached);

/* Bytes of the session, for sluice_session_save. They are bound to the model, not to budget,
 * threads or context length. */
SLUICE_API sluice_status sluice_session_state_bytes(sluice_session* session, uint64_t* bytes);
/* Copies `length` of them from `offset` on, which all lie inside, to `out`. */
SLUICE_API sluice_status sluice_session_save(sluice_session* session, uint64_t offset, void* out,
                                             size_t length);
/* Becomes what was saved. After an error the session is empty. Errors: SLUICE_CORRUPT (damaged, or
 * of another model), SLUICE_CONTEXT_FULL. */
SLUICE_API sluice_status sluice_session_restore(sluice_session* session, const void* data,
                                                size_t length);

/* Ends the calls that compute on the session now, bring it back from a file, or wait to: an answer
 * finishes with SLUICE_FINISH_CANCELLED, others return SLUICE_ABORTED. Does nothing when there are
 * none. From any thread, callbacks included. */
SLUICE_API sluice_status sluice_session_cancel(sluice_session* session);

/* --- answers -------------------------------------------------------------------------------------
 */

typedef struct sluice_logit_bias {
  int32_t token;
  float bias; /* added to its logit; minus infinity bans the token */
} sluice_logit_bias;

typedef struct sluice_sampling {
  size_t size;             /* of this structure, in bytes */
  uint64_t seed;           /* the same seed gives the same text; default 0 */
  float temperature;       /* 0: always the most likely token; default 0.8 */
  int32_t top_k;           /* among the k most likely; 0: all; default 40 */
  float top_p;             /* the smallest set with this probability; 1: all; default 0.95 */
  float min_p;             /* not less likely than this share of the best; 0: all; 0.05 */
  float repeat_penalty;    /* divides positive logits of earlier tokens; 1: off, the default */
  float frequency_penalty; /* subtracted for each time a token occurred; default 0 */
  float presence_penalty;  /* subtracted when it occurred; default 0 */
  int32_t penalty_last_n;  /* tokens that penalties look back; -1: all; default 64 */
  const sluice_logit_bias* logit_bias; /* null: none */
  size_t n_logit_bias;                 /* at most 1024 */
} sluice_sampling;

SLUICE_API sluice_status sluice_sampling_default(sluice_sampling* sampling, size_t size);

typedef struct sluice_token_logprob {
  int32_t token;
  float logprob; /* natural logarithm of the probability, under the model's own distribution */
} sluice_token_logprob;

typedef struct sluice_token_event { /* one token of an answer; valid during the callback */
  int32_t token;
  const char* text; /* whole characters that became certain with it, maybe none; ends in a zero */
  size_t length;    /* of the text, in bytes */
  float logprob;    /* where log-probabilities were asked for, else 0 */
  const sluice_token_logprob* top; /* the likeliest tokens, best first */
  size_t n_top;
} sluice_token_event;

/* Called in the thread that generates. Returns 0 to go on; any other value ends the answer with
 * SLUICE_FINISH_CANCELLED. */
typedef int32_t (*sluice_token_callback)(void* user, const sluice_token_event* piece);

enum { /* the form that an answer has to have; sluice_generate_options.constraint */
       SLUICE_CONSTRAINT_NONE = 0,
       SLUICE_CONSTRAINT_GBNF = 1,       /* a grammar in llama.cpp's notation */
       SLUICE_CONSTRAINT_REGEX = 2,      /* a regular expression, anchored at both ends */
       SLUICE_CONSTRAINT_CHOICE = 3,     /* one of the strings of a JSON array */
       SLUICE_CONSTRAINT_JSON = 4,       /* any JSON value; no text */
       SLUICE_CONSTRAINT_JSON_SCHEMA = 5 /* draft 2020-12 or 7 */
};

typedef struct sluice_generate_options {
  size_t size;                     /* of this structure, in bytes */
  const sluice_sampling* sampling; /* null: the defaults */
  int64_t max_tokens;              /* -1: until the context is full, the default */
  uint32_t prompt_flags;           /* of a prompt given as text; default SLUICE_ADD_SPECIAL |
                                      SLUICE_PARSE_SPECIAL */
  int32_t skip_special_tokens;     /* 1: control tokens have no text; default 1 */
  int32_t ignore_eos;              /* 1: goes on after an end token; default 0 */
  int32_t logprobs;                /* likeliest tokens to report, 0 to 64; -1: no
                                      log-probabilities, the default */
  const char* const* stop;         /* texts that end the answer and are no part of it */
  size_t n_stop;                   /* at most 64 */
  int32_t constraint;             /* SLUICE_FORM_..., needs sluice_load_options.structured_output */
  int32_t whitespace;             /* 1: JSON may have white space; default 0 */
  const char* constraint_text;    /* the grammar, expression, choice or schema */
  sluice_token_callback on_token; /* null: none */
  void* token_user;
} sluice_generate_options;

SLUICE_API sluice_status sluice_generate_options_default(sluice_generate_options* options,
                                                         size_t size);

enum {                             /* how an answer ended */
       SLUICE_FINISH_NONE = 0,     /* it did not: there was an error */
       SLUICE_FINISH_STOP = 1,     /* an end token, a stop text, or its form was complete */
       SLUICE_FINISH_LENGTH = 2,   /* max_tokens */
       SLUICE_FINISH_CONTEXT = 3,  /* the context is full */
       SLUICE_FINISH_CANCELLED = 4 /* the callback or sluice_session_cancel wanted it so */
};

typedef struct sluice_result {
  size_t size;        /* of this structure, in bytes */
  int32_t finish;     /* SLUICE_FINISH_... */
  int32_t stop_index; /* of the stop text that ended it; -1: none did */
  int32_t prompt_tokens;
  int32_t cached_tokens;         /* of the prompt, held by the session already */
  int32_t generated_tokens;      /* the end token not counted */
  double prompt_ms;              /* until the prompt was computed */
  double time_to_first_token_ms; /* until the first token was chosen; 0: none was */
  double generate_ms;            /* from the prompt's end to the last token */
  double prompt_tokens_per_second,
      tokens_per_second;   /* tokens a second; 0 where nothing was computed */
  int32_t drafted_tokens;  /* that were guessed and checked */
  int32_t accepted_tokens; /* of them, right: each saved a pass */
  int32_t forward_passes;  /* of the answer, the prompt's not counted */
} sluice_result;

/* Answers a prompt. The prompt becomes the session's text: of what the session holds, the longest
 * common beginning is kept and only the rest is computed, so a conversation passes all of its text
 * each time. `options` may be null for the defaults, `result` for none; it is filled in after an
 * error of computing too. Afterwards the session holds prompt and answer. */
SLUICE_API sluice_status sluice_generate(sluice_session* session, const char* prompt, size_t length,
                                         const sluice_generate_options* options,
                                         sluice_result* result);
/* The same of a prompt of n tokens. */
SLUICE_API sluice_status sluice_generate_tokens(sluice_session* session, const int32_t* prompt,
                                                size_t n, const sluice_generate_options* options,
                                                sluice_result* result);

/* --- one step at a time --------------------------------------------------------------------------
 */

enum { SLUICE_LAST_LOGITS = 0, SLUICE_ALL_LOGITS = 1 };

/* Appends n tokens to the session and computes the logits of the last one, or of all of them (at
 * most sluice_load_options.logits_rows). A model that reads texts whole begins anew with them. */
SLUICE_API sluice_status sluice_forward(sluice_session* session, const int32_t* tokens, size_t n,
                                        int32_t logits_mode);
/* The logits, sluice_info.n_vocab of them, of row `row` of the session's last sluice_forward
 * (with SLUICE_LAST_LOGITS row 0), until something else is computed on the engine, or the session
 * goes to a file. */
SLUICE_API sluice_status sluice_logits(sluice_session* session, int32_t row, float* out,
                                       size_t capacity, size_t* count);

/* Chooses tokens. It holds 8 bytes for each token of the vocabulary, beside the budget, and its
 * random numbers go on from call to call; one thread uses it at a time. */
typedef struct sluice_sampler sluice_sampler;
/* `sampling` may be null for the defaults. The engine may be freed before it. */
SLUICE_API sluice_status sluice_sampler_create(const sluice_engine* engine,
                                               const sluice_sampling* sampling,
                                               sluice_sampler** sampler);
/* Null is allowed. */
SLUICE_API void sluice_sampler_free(sluice_sampler* sampler);
/* Chooses *token from n logits, n being the vocabulary's size; `history` are the tokens so far,
 * for the penalties. The logits stay as they are. */
SLUICE_API sluice_status sluice_sampler_sample(sluice_sampler* sampler, const float* logits,
                                               size_t n, const int32_t* history, size_t n_history,
                                               int32_t* token);

/* --- embeddings ----------------------------------------------------------------------------------
 */

enum {                            /* how the vectors of a text's tokens become one */
       SLUICE_POOLING_MODEL = -1, /* as the model was trained, else the mean */
       SLUICE_POOLING_NONE = 0,   /* not at all: one for each token */
       SLUICE_POOLING_MEAN = 1,
       SLUICE_POOLING_CLS = 2,
       SLUICE_POOLING_LAST = 3,
       SLUICE_POOLING_RANK = 4 /* a reranker's scores */
};

typedef struct sluice_embed_options {
  size_t size;        /* of this structure, in bytes */
  int32_t pooling;    /* SLUICE_POOLING_...; default SLUICE_POOLING_MODEL */
  int32_t normalize;  /* 1: to length 1, the default; scores are not */
  int32_t dimensions; /* only the first so many; 0: all, the default */
  const char*
      query; /* scores the texts for it, with SLUICE_POOLING_RANK; null: none, the default */
} sluice_embed_options;

SLUICE_API sluice_status sluice_embed_options_default(sluice_embed_options* options, size_t size);

/* The vectors of n texts that end in zero bytes: *count values in `out`, row after row, as wide as
 * sluice_info's n_embd (or n_scores, or the dimensions asked for); a row is a text, or a token
 * with SLUICE_POOLING_NONE. The session's text is lost. `options` may be null for the defaults. */
SLUICE_API sluice_status sluice_embed(sluice_session* session, const char* const* texts, size_t n,
                                      const sluice_embed_options* options, float* out,
                                      size_t capacity, size_t* count);

#ifdef __cplusplus
}
#endif

#endif
