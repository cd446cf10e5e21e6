// How far tests go: `npm test` runs the short suite, `npm run test:all` the long one, with
// SLUICE_TEST_ALL=1 in the environment of everything that it starts.

/** Whether this is the long suite. */
export const all = process.env.SLUICE_TEST_ALL === '1';

/** For test(…, { skip: longOnly }): why a test is left out of the short suite, or false. */
export const longOnly = all ? false : 'in npm run test:all';

/** `few` in the short suite, `many` in the long one. */
export const extent = (few, many) => (all ? many : few);
