/* Generates a story within a memory budget of BYTES, in C11:
 *     story MODEL PROMPT [BYTES [TOKENS [SEED]]]
 * The same SEED gives the same story; without one it is random. Streams the story to standard output. Prints speed and memory map to standard error. */
#include <inttypes.h>
#include <sluice.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(sluice_status status) {
  fprintf(stderr, "story: %s [%s]\n", sluice_last_error(), sluice_status_name(status));
  return 1;
}

static int32_t show_piece(void *user, const sluice_token_event *piece) {
  (void)user;
  const size_t written = fwrite(piece->text, 1, piece->length, stdout);
  return written != piece->length || fflush(stdout) != 0; /* output closed: end */
}

static void show_memory(void *user, const char *name, uint64_t bytes) {
  (void)user;
  fprintf(stderr, "%12" PRIu64 "  %s\n", bytes, name);
}

static void show_stats(const sluice_engine *engine, const sluice_result *result) {
  sluice_info info = {.size = sizeof info};
  sluice_stats stats = {.size = sizeof stats};
  if (sluice_engine_info(engine, &info) != SLUICE_OK) return;
  if (sluice_engine_stats(engine, &stats) != SLUICE_OK) return;
  fprintf(stderr, "prompt %" PRId32 " tokens, %.1f/s | story %" PRId32 " tokens, %.1f/s\n",
          result->prompt_tokens, result->prompt_tokens_per_second, result->generated_tokens,
          result->tokens_per_second);
  fprintf(stderr, "%" PRIu64 " bytes of weights read, %.0f ms spent waiting for them\n",
          stats.bytes_read, stats.wait_ms);
  fprintf(stderr, "memory of %s (%s, %s):\n", info.name, info.architecture, info.kernels);
  if (sluice_engine_memory(engine, show_memory, NULL) != SLUICE_OK) return;
  fprintf(stderr, "%12" PRIu64 "  total, of a budget of %" PRIu64 "\n", info.memory_total,
          info.memory_budget);
}

static int tell(sluice_engine *engine, const char *prompt, int64_t max_tokens, const char *seed) {
  sluice_session *session = NULL;
  sluice_status status = sluice_session_create(engine, &session);
  if (status != SLUICE_OK) return fail(status);

  sluice_sampling sampling;
  status = sluice_sampling_default(&sampling, sizeof sampling);
  if (status == SLUICE_OK && seed != NULL) sampling.seed = strtoull(seed, NULL, 10);
  sluice_generate_options options;
  if (status == SLUICE_OK) status = sluice_generate_options_default(&options, sizeof options);
  sluice_result result = {.size = sizeof result};
  if (status == SLUICE_OK) {
    options.sampling = &sampling;
    options.max_tokens = max_tokens;
    options.on_token = show_piece;
    fputs(prompt, stdout);
    status = sluice_generate(session, prompt, SLUICE_TERMINATED, &options, &result);
    putchar('\n');
  }
  const int code = status == SLUICE_OK ? 0 : fail(status);
  if (code == 0) show_stats(engine, &result);
  sluice_session_free(session);
  return code;
}

int main(int argc, char **argv) {
  if (argc < 3 || argc > 6) {
    fprintf(stderr, "usage: story MODEL PROMPT [BYTES [TOKENS [SEED]]]\n");
    return 2;
  }
  sluice_load_options options;
  sluice_status status = sluice_load_options_default(&options, sizeof options);
  if (status != SLUICE_OK) return fail(status);
  if (argc > 3) options.memory_budget = strtoull(argv[3], NULL, 10);

  sluice_engine *engine = NULL;
  status = sluice_load(argv[1], &options, &engine);
  if (status != SLUICE_OK) return fail(status);
  const int64_t max_tokens = argc > 4 ? strtoll(argv[4], NULL, 10) : 128;
  const int code = tell(engine, argv[2], max_tokens, argc > 5 ? argv[5] : NULL);
  sluice_engine_free(engine);
  return code;
}
