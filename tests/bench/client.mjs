// An HTTP client of OpenAI-compatible completion endpoints, for load tests and benchmarks.
import { Agent, request } from 'node:http';

export class Client {
  #agent = new Agent({ keepAlive: true, maxSockets: Infinity });

  constructor(url) {
    this.port = Number(new URL(url).port);
  }

  /**
   * Sends one request. `onEvent` gets each frame of a stream and returns false to close the
   * connection.
   */
  ask(path, body, onEvent) {
    return new Promise((resolve, reject) => {
      const text = typeof body === 'string' ? body : JSON.stringify(body);
      const call = request(
        {
          agent: this.#agent,
          host: '127.0.0.1',
          port: this.port,
          path,
          method: 'POST',
          headers: {
            'content-type': 'application/json',
            'content-length': Buffer.byteLength(text),
          },
        },
        (response) => {
          let all = '';
          let rest = '';
          response.setEncoding('utf8').on('data', (more) => {
            if (response.statusCode !== 200 || !onEvent) return void (all += more);
            const frames = (rest + more).split('\n\n');
            rest = frames.pop();
            for (const frame of frames) {
              if (onEvent(frame.replace(/^data: /, ''))) continue;
              call.destroy();
              resolve({ status: 0 });
              return;
            }
          });
          response.on('end', () =>
            resolve({ status: response.statusCode, headers: response.headers, text: all }),
          );
          response.on('error', reject);
        },
      );
      // A reset of a reused connection: the server had closed it before this request. Retry.
      call.on('error', (error) =>
        call.reusedSocket && error.code === 'ECONNRESET'
          ? resolve(this.ask(path, body, onEvent))
          : reject(error),
      );
      call.end(text);
    });
  }

  close() {
    this.#agent.destroy();
  }
}

/** The text of one frame of a streamed completion or chat completion. */
export function told(frame) {
  if (frame === '[DONE]') return '';
  const {
    choices: [choice],
  } = JSON.parse(frame);
  return choice?.text ?? choice?.delta?.content ?? '';
}

/** The quantile `share` (0 to 1) of a list of numbers. */
export const at = (list, share) =>
  [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * share))] ??
  NaN;

/** Waits until a server listens; returns the URL from its first line of JSON. */
export async function listening(server) {
  const line = await new Promise((resolve, reject) => {
    server.stdout.setEncoding('utf8').once('data', resolve);
    server.once('exit', () => reject(new Error('the server exited before it was ready')));
  });
  return JSON.parse(line).url;
}
