// Waiting with a limit, for Node and for pages.

/**
 * Waits until `holds()` does, asking every `ms`; after a minute fails with `what` did not happen,
 * or with what the function `what` returns.
 */
export async function eventually(holds, what, ms = 1) {
  const end = Date.now() + 60_000;
  while (!(await holds())) {
    if (Date.now() > end)
      throw new Error(typeof what === 'string' ? `not within a minute: ${what}` : await what());
    await new Promise((later) => setTimeout(later, ms));
  }
}
