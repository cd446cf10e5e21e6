// A reporter of node:test that prints the name of each test as it begins. TAP names a test only
// after it has ended. See unfinished() in node.mjs.
export default async function* running(events) {
  for await (const { type, data } of events) {
    if (type === 'test:dequeue') yield `# running: ${' '.repeat(4 * data.nesting)}${data.name}\n`;
  }
}
