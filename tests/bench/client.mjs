// A client of OpenAI's completions over HTTP, for what loads and measures servers.
import { Agent, request } from 'node:http';

export class Client {
  #agent = new Agent({ keepAlive: true, maxSockets: Infinity });

  constructor(url) {
    this.port = Number(new URL(url).port);
  }

  /** One request; `onEvent` gets each frame of a stream and says whether to stay. */
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
      // A connection that the server has closed meanwhile says nothing of this request.
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

/** The text of a stream's frame, of a completion or of a chat. */
export function told(frame) {
  if (frame === '[DONE]') return '';
  const {
    choices: [choice],
  } = JSON.parse(frame);
  return choice?.text ?? choice?.delta?.content ?? '';
}

/** The value below which a share of the list lies. */
export const at = (list, share) =>
  [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * share))] ??
  NaN;

/** The first line of JSON that a server prints, once it listens. */
export async function listening(server) {
  const line = await new Promise((resolve, reject) => {
    server.stdout.setEncoding('utf8').once('data', resolve);
    server.once('exit', () => reject(new Error('no server')));
  });
  return JSON.parse(line).url;
}
