// `npx sluice-llm serve`, the server over the package in Node: the tests of the native one.
process.env.SLUICE_SERVE = 'node';
await import('./serve.test.mjs');
