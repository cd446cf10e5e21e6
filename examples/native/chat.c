/* A conversation with a model that may ask for the time, in C11:
 *     chat MODEL [BYTES]
 * Reads messages from standard input, one per line, and writes responses to standard output.
 * Reasoning and calls go to standard error. */
#include <sluice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const kTools =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_time\", "
    "\"description\": \"The current local time.\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {}}}}]";
enum { kMaxRounds = 8 }; /* responses to one message that call a tool */

/* A growing text, zero-terminated once something was appended. */
struct text {
  char *data;
  size_t length;
};

static void append(struct text *to, const char *data, size_t length) {
  char *grown = realloc(to->data, to->length + length + 1);
  if (grown == NULL) abort();
  memcpy(grown + to->length, data, length);
  to->data = grown;
  to->length += length;
  grown[to->length] = '\0';
}

static void append_string(struct text *to, const char *string) {
  append(to, string, strlen(string));
}

static void append_json_string(struct text *to, const char *string) {
  append(to, "\"", 1);
  for (; *string != '\0'; ++string) {
    char escaped[8];
    if (*string == '"' || *string == '\\') append(to, "\\", 1);
    if ((unsigned char)*string >= 0x20) {
      append(to, string, 1);
    } else {
      snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*string);
      append_string(to, escaped);
    }
  }
  append(to, "\"", 1);
}

/* The messages of a conversation as JSON, without the brackets around the list. */
static void append_message(struct text *messages, const char *json) {
  if (messages->length > 0) append(messages, ",", 1);
  append_string(messages, json);
}

static void append_user_message(struct text *messages, const char *content) {
  struct text message = {NULL, 0};
  append_string(&message, "{\"role\": \"user\", \"content\": ");
  append_json_string(&message, content);
  append(&message, "}", 1);
  append_message(messages, message.data);
  free(message.data);
}

static void append_tool_message(struct text *messages, const sluice_tool_call *call) {
  char result[64] = "there is no such tool";
  if (strcmp(call->name, "get_time") == 0) {
    const time_t now = time(NULL);
    strftime(result, sizeof result, "%H:%M", localtime(&now));
  }
  fprintf(stderr, "[%s(%s): %s]\n", call->name, call->arguments, result);
  struct text message = {NULL, 0};
  append_string(&message, "{\"role\": \"tool\", \"tool_call_id\": ");
  append_json_string(&message, call->id);
  append_string(&message, ", \"content\": ");
  append_json_string(&message, result);
  append(&message, "}", 1);
  append_message(messages, message.data);
  free(message.data);
}

/* One response that is being read. */
struct response {
  sluice_chat *chat;
  sluice_status status;
  struct text results; /* messages with the results of calls */
};

static void show(struct response *response, const sluice_chat_delta *delta) {
  fwrite(delta->reasoning, 1, delta->reasoning_length, stderr);
  fwrite(delta->content, 1, delta->content_length, stdout);
  fflush(stdout);
  for (size_t i = 0; i < delta->n_tool_calls; ++i) {
    append_tool_message(&response->results, &delta->tool_calls[i]);
  }
}

static int32_t read_token(void *user, const sluice_token_event *event) {
  struct response *response = user;
  sluice_chat_delta delta = {.size = sizeof delta};
  response->status =
      sluice_chat_push(response->chat, event->text, event->length, event->token, &delta);
  if (response->status != SLUICE_OK) return 1;
  show(response, &delta);
  return ferror(stdout) != 0; /* output closed: end */
}

/* Generates a response, and appends it and the results of its calls to the messages. */
static sluice_status respond(sluice_session *session, struct response *response,
                             struct text *messages) {
  sluice_chat_prompt prompt = {.size = sizeof prompt};
  sluice_status status = sluice_chat_get_prompt(response->chat, &prompt);
  if (status != SLUICE_OK) return status;
  sluice_generate_options options;
  status = sluice_generate_options_default(&options, sizeof options);
  if (status != SLUICE_OK) return status;
  options.stop = prompt.stop;
  options.n_stop = prompt.n_stop;
  options.constraint = prompt.constraint;
  options.constraint_text = prompt.constraint_text;
  options.skip_special_tokens = prompt.skip_special_tokens;
  options.on_token = read_token;
  options.token_user = response;
  status = sluice_generate_tokens(session, prompt.tokens, prompt.n_tokens, &options, NULL);
  if (status == SLUICE_OK) status = response->status;
  if (status != SLUICE_OK) return status;

  sluice_chat_delta delta = {.size = sizeof delta};
  status = sluice_chat_finish(response->chat, &delta);
  if (status != SLUICE_OK) return status;
  show(response, &delta);
  size_t length = 0;
  status = sluice_chat_message(response->chat, NULL, 0, &length);
  if (status != SLUICE_OK) return status;
  char *message = malloc(length + 1);
  if (message == NULL) abort();
  status = sluice_chat_message(response->chat, message, length + 1, &length);
  if (status == SLUICE_OK) append_message(messages, message);
  free(message);
  if (response->results.length > 0) append_message(messages, response->results.data);
  return status;
}

/* Answers the last message: calls tools until the model calls none. */
static sluice_status answer(const sluice_engine *engine, sluice_session *session,
                            struct text *messages) {
  for (int round = 0; round < kMaxRounds; ++round) {
    struct text list = {NULL, 0};
    append(&list, "[", 1);
    append_string(&list, messages->data);
    append(&list, "]", 1);
    sluice_chat_options request;
    sluice_status status = sluice_chat_options_default(&request, sizeof request);
    request.messages = list.data;
    request.tools = kTools;
    struct response response = {NULL, SLUICE_OK, {NULL, 0}};
    if (status == SLUICE_OK) status = sluice_chat_create(engine, &request, &response.chat);
    if (status == SLUICE_OK) status = respond(session, &response, messages);
    const int called = response.results.length > 0;
    sluice_chat_free(response.chat);
    free(response.results.data);
    free(list.data);
    if (status != SLUICE_OK) return status;
    if (!called) break;
  }
  putchar('\n');
  return SLUICE_OK;
}

static sluice_status converse(const sluice_engine *engine, sluice_session *session) {
  struct text messages = {NULL, 0};
  sluice_status status = SLUICE_OK;
  char line[4096];
  while (status == SLUICE_OK && fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    append_user_message(&messages, line);
    status = answer(engine, session, &messages);
  }
  free(messages.data);
  return status;
}

int main(int argc, char **argv) {
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: chat MODEL [BYTES]\n");
    return 2;
  }
  sluice_load_options options;
  sluice_engine *engine = NULL;
  sluice_session *session = NULL;
  sluice_status status = sluice_load_options_default(&options, sizeof options);
  if (argc > 2) options.memory_budget = strtoull(argv[2], NULL, 10);
  if (status == SLUICE_OK) status = sluice_load(argv[1], &options, &engine);
  if (status == SLUICE_OK) status = sluice_session_create(engine, &session);
  if (status == SLUICE_OK) status = converse(engine, session);
  if (status != SLUICE_OK) {
    fprintf(stderr, "chat: %s [%s]\n", sluice_last_error(), sluice_status_name(status));
  }
  sluice_session_free(session);
  sluice_engine_free(engine);
  return status == SLUICE_OK ? 0 : 1;
}
