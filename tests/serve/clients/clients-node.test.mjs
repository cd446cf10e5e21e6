// Runs the clients against `npx sluice-llm serve`, the package's server in Node.
process.env.SLUICE_SERVE = 'node';
await import('./clients.test.mjs');
