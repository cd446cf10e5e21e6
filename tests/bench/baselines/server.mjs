// A completion server on node-llama-cpp's prebuilt CPU library: one context with SEQUENCES
// sequences, decoded in one batch. A sequence serves one request at a time.
//   node server.mjs MODEL THREADS SEQUENCES CONTEXT    → {"url": ...} on one line, then it serves
import { createServer } from 'node:http';
import { loadModel } from './load.mjs';

const [modelPath, ...numbers] = process.argv.slice(2);
const [threads, sequences, contextSize] = numbers.map(Number);

const model = await loadModel(modelPath, threads);
const context = await model.createContext({
  contextSize,
  sequences,
  batchSize: 512,
  flashAttention: true,
  threads: { ideal: threads, min: threads },
});
const free = Array.from({ length: sequences }, () => context.getSequence());
const waiting = [];
const take = () => (free.length > 0 ? free.pop() : new Promise((resolve) => waiting.push(resolve)));
const giveBack = (sequence) =>
  waiting.length > 0 ? waiting.shift()(sequence) : free.push(sequence);

async function answer({ prompt, max_tokens: most }, response) {
  const sequence = await take();
  try {
    await sequence.clearHistory();
    let n = 0;
    for await (const token of sequence.evaluate(model.tokenize(prompt), {
      temperature: 0,
      yieldEogToken: true,
    })) {
      response.write(
        `data: ${JSON.stringify({ choices: [{ text: model.detokenize([token], true) }] })}\n\n`,
      );
      if (++n === most || response.destroyed) break;
    }
    response.end('data: [DONE]\n\n');
  } finally {
    giveBack(sequence);
  }
}

const server = createServer(async (request, response) => {
  let body = '';
  for await (const more of request.setEncoding('utf8')) body += more;
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  await answer(JSON.parse(body), response);
});
server.listen(0, '127.0.0.1', () =>
  console.log(JSON.stringify({ url: `http://127.0.0.1:${server.address().port}` })),
);
process.on('SIGTERM', () => process.exit(0));
