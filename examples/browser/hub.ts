// Search on Hugging Face: repositories by name, and the GGUF files of one, by quantization. Errors
// are sentences for people.

import type { HubFile } from 'sluice-llm/huggingface';

import { isAbort } from './error-advice.js';

/** A repository that the search found. */
export interface Repository {
  /** owner/name */
  id: string;
  downloads: number;
  /** Its files are given only to people who have accepted its terms. */
  gated: boolean;
}

const kMaxResults = 20;
/** GGUF files that are not language models. */
const kOther = /mmproj|imatrix|vocab|projector|adapter/i;

/** The hub, or the mirror that the page's host has chosen in its HTML. */
const hub = (): string =>
  document.querySelector<HTMLMetaElement>('meta[name=hub]')?.content || 'https://huggingface.co';

/** Repositories with GGUF files whose names match, the most downloaded first. */
export async function searchModels(name: string, signal: AbortSignal): Promise<Repository[]> {
  const query = new URLSearchParams({
    search: name,
    filter: 'gguf',
    sort: 'downloads',
    limit: String(kMaxResults),
  });
  const response = await ask(`${hub()}/api/models?${query.toString()}`, { signal });
  const list: unknown = await response.json().catch(() => null);
  if (!Array.isArray(list)) throw new Error('Hugging Face sent no list of models.');
  return (list as Partial<Repository>[])
    .filter(({ id }) => typeof id === 'string' && /^[\w.-]+\/[\w.-]+$/.test(id))
    .slice(0, kMaxResults)
    .map(({ id, downloads, gated }) => ({
      id: id!,
      downloads: Number(downloads) || 0,
      gated: !!gated,
    }));
}

/** Models in a repository, the smallest first. */
export async function filesOf(repository: string, signal: AbortSignal): Promise<HubFile[]> {
  const { listHuggingFaceFiles } = await import('sluice-llm/huggingface');
  let failure: unknown;
  const fetch: typeof globalThis.fetch = (url, init) =>
    ask(url as string, init).catch((error: unknown) => {
      throw (failure = error);
    });
  try {
    const files = await listHuggingFaceFiles(repository, { endpoint: hub(), signal, fetch });
    return files.filter(({ path }) => !kOther.test(path));
  } catch (error) {
    throw failure ?? error;
  }
}

async function ask(url: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, init);
  } catch (error) {
    if (isAbort(error) || init.signal?.aborted) throw error;
    throw new Error('Hugging Face cannot be reached. Check the connection.', { cause: error });
  }
  if (response.ok) return response;
  throw new Error(refusal(response.status));
}

function refusal(status: number): string {
  if (status === 401 || status === 403)
    return 'This repository asks for a sign-in. Download a file there and drop it here.';
  if (status === 404) return 'This repository does not exist any more.';
  if (status === 429) return 'Hugging Face got too many requests. Try again in a few minutes.';
  return 'Hugging Face has a problem. Try again later.';
}
