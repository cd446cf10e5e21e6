// The openai package: chat completions, completions, responses, embeddings, models, errors.
import assert from 'node:assert/strict';

import { asks, key, parameters } from './servers.mjs';

const model = 'any';
const user = (content) => [{ role: 'user', content }];
const functions = [{ type: 'function', function: { name: 'weather', parameters } }];
const tool = { type: 'function', name: 'weather', parameters, strict: false };
const { hello, pirate, reason, json, weather, both } = asks;

const items = async (stream) => {
  const all = [];
  for await (const item of stream) all.push(item);
  return all;
};

export async function openai({ load, script, tales }) {
  const { default: OpenAI, ...errors } = await load('openai');
  const { zodFunction, zodResponseFormat, zodTextFormat } = await load('openai/helpers/zod');
  const { z } = await load('zod');
  const connect = ({ url }, apiKey = key) =>
    new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0, timeout: 60_000 });
  const client = connect(script);
  const writer = connect(tales);
  const { completions } = client.chat;
  const City = z.object({ city: z.string(), degrees: z.int() });
  const WeatherOf = z.object({ city: z.string() });

  const called = ({ id, ...call }) => {
    assert.match(id, /^call_/);
    assert.equal(call.type, 'function');
    assert.equal(call.function.name, weather.call.name);
    assert.deepEqual(JSON.parse(call.function.arguments), weather.call.arguments);
  };

  return {
    chat: async () => {
      const { choices, usage } = await completions.create({ model, messages: user(hello.prompt) });
      assert.equal(choices[0].message.content, hello.answer);
      assert.equal(choices[0].finish_reason, 'stop');
      assert.ok(usage.completion_tokens > 0);
      assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
    },
    'chat: developer': async () => {
      const { choices } = await completions.create({
        model,
        messages: [{ role: 'developer', content: pirate.system }, ...user(pirate.prompt)],
      });
      assert.equal(choices[0].message.content, pirate.answer);
    },
    'chat: content parts': async () => {
      const { choices } = await completions.create({
        model,
        messages: [
          { role: 'system', content: [{ type: 'text', text: pirate.system }] },
          ...user([{ type: 'text', text: pirate.prompt }]),
        ],
      });
      assert.equal(choices[0].message.content, pirate.answer);
    },
    'chat: stream': async () => {
      const chunks = await items(
        await completions.create({
          model,
          messages: user(hello.prompt),
          stream: true,
          stream_options: { include_usage: true },
        }),
      );
      const text = chunks.map(({ choices: [c] }) => c?.delta.content ?? '').join('');
      assert.equal(text, hello.answer);
      assert.equal(chunks.at(-2).choices[0].finish_reason, 'stop');
      assert.deepEqual(chunks.at(-1).choices, []);
      assert.ok(chunks.at(-1).usage.completion_tokens > 0);
    },
    'chat: stream helper': async () => {
      const stream = completions.stream({ model, messages: user(hello.prompt) });
      const deltas = [];
      stream.on('content', (delta) => deltas.push(delta));
      assert.equal(await stream.finalContent(), hello.answer);
      assert.equal(deltas.join(''), hello.answer);
    },
    'chat: several choices': async () => {
      const params = { model, messages: user(hello.prompt), n: 2 };
      const { choices } = await completions.create(params);
      assert.deepEqual(
        choices.map(({ index, message }) => [index, message.content]),
        [0, 1].map((index) => [index, hello.answer]),
      );
      const streamed = await completions.stream(params).finalChatCompletion();
      assert.deepEqual(
        streamed.choices.map(({ message }) => message.content),
        [hello.answer, hello.answer],
      );
    },
    'chat: reasoning': async () => {
      const messages = user(reason.prompt);
      const { message } = (await completions.create({ model, messages })).choices[0];
      assert.equal(message.reasoning_content, reason.reasoning);
      messages.push(message, ...user(hello.prompt));
      const second = await completions.create({ model, messages });
      assert.equal(second.choices[0].message.content, hello.answer);
    },
    'chat: logprobs': async () => {
      const { choices } = await completions.create({
        model,
        messages: user(hello.prompt),
        logprobs: true,
        top_logprobs: 2,
      });
      const { content } = choices[0].logprobs;
      assert.equal(content.map(({ token }) => token).join(''), hello.answer);
      assert.equal(content[0].top_logprobs.length, 2);
    },
    'chat: sampling options': async () => {
      const { choices } = await completions.create({
        model,
        messages: user(hello.prompt),
        ...{ temperature: 0, top_p: 0.9, seed: 1, stop: [' there'], max_completion_tokens: 9 },
        ...{ frequency_penalty: 0, presence_penalty: 0, n: 1, user: 'someone', store: false },
        ...{ metadata: { a: 'b' }, logit_bias: {}, reasoning_effort: 'low' },
      });
      assert.equal(choices[0].message.content, 'Hello');
      assert.equal(choices[0].finish_reason, 'stop');
    },
    tools: async () => {
      const messages = user(weather.prompt);
      const first = await completions.create({ model, messages, tools: functions });
      const { message, finish_reason: finish } = first.choices[0];
      assert.equal(finish, 'tool_calls');
      assert.equal(message.tool_calls.length, 1);
      called(message.tool_calls[0]);
      const { id } = message.tool_calls[0];
      messages.push(message, { role: 'tool', tool_call_id: id, content: weather.result });
      const second = await completions.create({ model, messages, tools: functions });
      assert.equal(second.choices[0].message.content, weather.answer);
    },
    'tools: stream': async () => {
      const messages = user(weather.prompt);
      const stream = completions.stream({ model, messages, tools: functions });
      const { choices } = await stream.finalChatCompletion();
      assert.equal(choices[0].finish_reason, 'tool_calls');
      const { tool_calls: calls } = choices[0].message;
      assert.equal(calls.length, 1);
      called(calls[0]);
    },
    'tools: parallel': async () => {
      for (const stream of [false, true]) {
        const messages = user(both.prompt);
        const params = { model, messages, tools: functions };
        const { choices } = stream
          ? await completions.stream(params).finalChatCompletion()
          : await completions.create(params);
        const { message } = choices[0];
        assert.equal(message.content.trim(), both.text);
        messages.push(message);
        for (const { id, function: f } of message.tool_calls) {
          const { city } = JSON.parse(f.arguments);
          messages.push({ role: 'tool', tool_call_id: id, content: both.results[city] });
        }
        assert.equal(messages.length, 4);
        const second = await completions.create({ model, messages, tools: functions });
        assert.equal(second.choices[0].message.content, both.answer);
      }
    },
    'tools: required': async () => {
      for (const choice of ['required', { type: 'function', function: { name: 'weather' } }]) {
        const { choices } = await completions.create({
          model,
          messages: user(hello.prompt),
          tools: functions,
          tool_choice: choice,
        });
        called(choices[0].message.tool_calls[0]);
      }
    },
    'tools: none': async () => {
      const { choices } = await completions.create({
        model,
        messages: user(hello.prompt),
        tools: functions,
        tool_choice: 'none',
      });
      assert.equal(choices[0].message.content, hello.answer);
    },
    'tools: zodFunction': async () => {
      const messages = user(weather.prompt);
      const tools = [zodFunction({ name: 'weather', parameters: WeatherOf })];
      const { choices } = await completions.parse({ model, messages, tools });
      const { message } = choices[0];
      const [call] = message.tool_calls;
      assert.deepEqual(call.function.parsed_arguments, weather.call.arguments);
      messages.push(message, { role: 'tool', tool_call_id: call.id, content: weather.result });
      const second = await completions.parse({ model, messages, tools });
      assert.equal(second.choices[0].message.content, weather.answer);
    },
    runTools: async () => {
      for (const stream of [false, true]) {
        const cities = [];
        const runner = completions.runTools({
          model,
          stream,
          messages: user(weather.prompt),
          tools: [
            {
              type: 'function',
              function: {
                name: 'weather',
                parse: JSON.parse,
                parameters,
                function: ({ city }) => {
                  cities.push(city);
                  return weather.result;
                },
              },
            },
          ],
        });
        assert.equal(await runner.finalContent(), weather.answer);
        assert.deepEqual(cities, ['Oslo']);
      }
    },
    'structured: Zod': async () => {
      const format = zodResponseFormat(City, 'weather');
      const params = { model, messages: user(json.prompt), response_format: format };
      const { choices } = await completions.parse(params);
      assert.deepEqual(choices[0].message.parsed, json.value);
      const streamed = await completions.stream(params).finalChatCompletion();
      assert.deepEqual(streamed.choices[0].message.parsed, json.value);
    },
    'structured: JSON object': async () => {
      const { choices } = await completions.create({
        model,
        messages: user(json.prompt),
        response_format: { type: 'json_object' },
      });
      assert.deepEqual(JSON.parse(choices[0].message.content), json.value);
    },
    completions: async () => {
      const params = { model, prompt: 'Once upon a time', max_tokens: 8, temperature: 0 };
      const { choices, usage } = await writer.completions.create(params);
      assert.match(choices[0].text, /\w/);
      assert.equal(usage.completion_tokens, 8);
      const chunks = await items(await writer.completions.create({ ...params, stream: true }));
      assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(''), choices[0].text);
    },
    responses: async () => {
      const response = await client.responses.create({ model, input: hello.prompt });
      assert.equal(response.output_text, hello.answer);
      assert.equal(response.status, 'completed');
      assert.ok(response.usage.output_tokens > 0);
      const pirates = await client.responses.create({
        model,
        instructions: pirate.system,
        input: user([{ type: 'input_text', text: pirate.prompt }]),
      });
      assert.equal(pirates.output_text, pirate.answer);
    },
    'responses: stream': async () => {
      const params = { model, input: hello.prompt };
      const events = await items(await client.responses.create({ ...params, stream: true }));
      const types = events.map(({ type }) => type);
      assert.equal(types[0], 'response.created');
      assert.equal(types.at(-1), 'response.completed');
      for (const [i, event] of events.entries()) assert.equal(event.sequence_number, i);
      const deltas = events.filter(({ type }) => type === 'response.output_text.delta');
      assert.equal(deltas.map(({ delta }) => delta).join(''), hello.answer);
      const response = await client.responses.stream(params).finalResponse();
      assert.equal(response.output_text, hello.answer);
    },
    'responses: reasoning': async () => {
      const response = await client.responses.create({ model, input: reason.prompt });
      assert.equal(response.output_text, reason.answer);
      assert.deepEqual(
        response.output.map(({ type }) => type),
        ['reasoning', 'message'],
      );
      assert.equal(response.output[0].content[0].text.trim(), reason.reasoning);
    },
    'responses: tools': async () => {
      const input = user(weather.prompt);
      const first = await client.responses.create({ model, input, tools: [tool] });
      const call = first.output.find(({ type }) => type === 'function_call');
      assert.equal(call.name, weather.call.name);
      assert.deepEqual(JSON.parse(call.arguments), weather.call.arguments);
      const result = {
        type: 'function_call_output',
        call_id: call.call_id,
        output: weather.result,
      };
      input.push(...first.output, result);
      const second = await client.responses.create({ model, input, tools: [tool] });
      assert.equal(second.output_text, weather.answer);
    },
    'responses: tools: stream': async () => {
      const stream = client.responses.stream({ model, input: weather.prompt, tools: [tool] });
      const { output } = await stream.finalResponse();
      assert.equal(output[0].type, 'function_call');
      assert.deepEqual(JSON.parse(output[0].arguments), weather.call.arguments);
    },
    'responses: structured': async () => {
      const response = await client.responses.parse({
        model,
        input: json.prompt,
        text: { format: zodTextFormat(City, 'weather') },
      });
      assert.deepEqual(response.output_parsed, json.value);
    },
    'responses: errors': async () => {
      await assert.rejects(
        client.responses.create({ model, input: 'x', previous_response_id: 'resp_1' }),
        (e) => e instanceof errors.BadRequestError && e.param === 'previous_response_id',
      );
    },
    embeddings: async () => {
      const input = ['a fox', 'an owl'];
      // Without a format, this client asks for base64 and decodes it.
      const { data, usage } = await writer.embeddings.create({ model, input });
      assert.equal(data.length, 2);
      assert.ok(usage.prompt_tokens > 0);
      const float = await writer.embeddings.create({ model, input, encoding_format: 'float' });
      assert.deepEqual(data[1].embedding, float.data[1].embedding.map(Math.fround));
      const text = await writer.embeddings.create({ model, input, encoding_format: 'base64' });
      const bytes = Buffer.from(text.data[1].embedding, 'base64');
      assert.deepEqual([...new Float32Array(new Uint8Array(bytes).buffer)], data[1].embedding);
      const short = await writer.embeddings.create({ model, input: 'a fox', dimensions: 8 });
      assert.equal(short.data[0].embedding.length, 8);
    },
    models: async () => {
      const [{ id, object }, ...others] = await items(client.models.list());
      assert.deepEqual([object, others], ['model', []]);
      assert.equal((await client.models.retrieve(id)).id, id);
    },
    errors: async () => {
      const chat = (more, from = client) =>
        from.chat.completions.create({ model, messages: user('x'), ...more });
      for (const stream of [false, true]) {
        await assert.rejects(
          chat({ stream }, connect(script, 'wrong')),
          errors.AuthenticationError,
        );
        await assert.rejects(chat({ stream, temperature: 'hot' }), (e) => {
          assert.ok(e instanceof errors.BadRequestError);
          assert.deepEqual([e.status, e.code, e.param], [400, 'INVALID_ARGUMENT', 'temperature']);
          return e.type === 'invalid_request_error';
        });
      }
      const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } };
      await assert.rejects(chat({ messages: user([image]) }), errors.BadRequestError);
      await assert.rejects(client.models.retrieve('other'), errors.NotFoundError);
      await assert.rejects(client.images.generate({ prompt: 'x' }), errors.NotFoundError);
    },
    abort: async () => {
      const tokens = () => counted(tales, 'sluice_generation_tokens_total');
      const running = async (wanted) => {
        const end = Date.now() + 30_000;
        while ((await counted(tales, 'sluice_requests_running')) > 0 !== wanted)
          assert.ok(Date.now() < end, `running requests: ${!wanted}`);
      };
      // Without the tokens that end a story, it has its full length.
      const length = { max_tokens: 480, logit_bias: { 0: -100, 4: -100 } };
      const params = { model, prompt: 'Once upon a time', temperature: 0, ...length };
      const before = await tokens();
      const stream = await writer.completions.create({ ...params, stream: true });
      for await (const chunk of stream) {
        assert.equal(chunk.choices.length, 1);
        stream.controller.abort();
      }
      await running(false);
      const controller = new AbortController();
      const many = { ...params, n: 16 }; // one alone could end before the abort arrives
      const whole = writer.completions.create(many, { signal: controller.signal });
      const rejected = assert.rejects(whole, errors.APIUserAbortError);
      await running(true);
      controller.abort();
      await rejected;
      await running(false);
      const spent = (await tokens()) - before;
      assert.ok(spent < many.n * length.max_tokens, `${spent} tokens`);
      await assert.rejects(
        writer.completions.create({ model, prompt: 'x' }, { signal: AbortSignal.abort() }),
        errors.APIUserAbortError,
      );
    },
  };
}

/** A metric, of a server that asks for a key. */
async function counted({ url }, name) {
  const response = await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${key}` } });
  const line = (await response.text()).split('\n').find((l) => l.startsWith(`${name} `));
  return line ? Number(line.slice(name.length)) : 0;
}
