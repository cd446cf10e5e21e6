// The clients by name. Each is a function that connects to the servers and returns its features:
// { name: check }.
import { agents } from './agents.mjs';
import { aiSdk6OpenAI, aiSdkCompatible, aiSdkOpenAI } from './ai-sdk.mjs';
import { anthropic } from './anthropic.mjs';
import { instructor } from './instructor.mjs';
import { langchain } from './langchain.mjs';
import { llamaindex } from './llamaindex.mjs';
import { ollama } from './ollama.mjs';
import { openai } from './openai.mjs';

export const clients = {
  openai,
  'ai, @ai-sdk/openai': aiSdkOpenAI,
  'ai, @ai-sdk/openai-compatible': aiSdkCompatible,
  'ai-6, ai-6-openai': aiSdk6OpenAI,
  '@langchain/openai': langchain,
  '@openai/agents': agents,
  '@anthropic-ai/sdk': anthropic,
  ollama,
  '@llamaindex/openai': llamaindex,
  '@instructor-ai/instructor': instructor,
};
