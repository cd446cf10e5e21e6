// Which suite runs: `npm test` is the short suite, `npm run test:all` the long one. The long suite
// sets SLUICE_TEST_ALL=1 in the environment of everything that it starts.

/** Whether the long suite runs. */
export const all = process.env.SLUICE_TEST_ALL === '1';

/** For test(…, { skip: longOnly }): the reason why the short suite skips the test, or false. */
export const longOnly = all ? false : 'in npm run test:all';

/** `few` in the short suite, `many` in the long one. */
export const extent = (few, many) => (all ? many : few);
