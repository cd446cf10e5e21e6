// Runs the tests of the native server against `npx sluice-llm serve`, the package's server in Node.
process.env.SLUICE_SERVE = 'node';
await import('./ollama.test.mjs');
