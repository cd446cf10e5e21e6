// Loads templates.js at the first chat: the chat template renderer and the OpenAI-compatible API.

import { moduleError } from '../protocol/errors.js';

export const chatModule = () => import('./templates.js').catch(moduleError('templates.js'));
