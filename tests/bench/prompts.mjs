// Prompts with completions of three kinds: a summary that takes its sentences from an article, a
// program with one change, and prose without repetition. A model with random weights would not
// write them, so `sluice bench --replay` replays the completion, at the cost of generating it.
const article = `The harbour council of Elsby voted on Tuesday to close the old fish market and to move its stalls to the northern quay.
The old fish market was built in 1911 and its roof has leaked since the storm of last winter. Repairs would cost four million crowns,
which the harbour council says it does not have. The stallholders, of whom there are twenty-six, had asked for two more years.
"We know what it means to the families who have stood here for generations," said the chair of the harbour council, Ingrid Moe, "but
nobody can promise that the roof holds through another winter." The northern quay lies nine hundred metres away, beside the ferry landing,
where the council expects more visitors in summer and far fewer between November and March. The stallholders will pay half of the present
rent for the first eighteen months. The building itself is protected: its iron columns and the tiled frieze above the southern gate may not
be removed, and the national heritage office has asked for a plan of use before the end of the year. Two proposals have been made so far,
a library with a reading room towards the water, and a school of boatbuilding that would keep the slipway. The council will decide in March.`;

const summary = `The harbour council of Elsby voted on Tuesday to close the old fish market and to move its stalls to the northern quay. The old fish
market was built in 1911 and its roof has leaked since the storm of last winter; repairs would cost four million crowns, which the harbour
council says it does not have. The stallholders, of whom there are twenty-six, had asked for two more years, and will pay half of the present
rent for the first eighteen months. The northern quay lies nine hundred metres away, beside the ferry landing. The building itself is
protected: its iron columns and the tiled frieze above the southern gate may not be removed. Two proposals have been made so far, a library
with a reading room towards the water, and a school of boatbuilding that would keep the slipway. The council will decide in March.`;

const program = `export class Ledger {
  constructor(clock) {
    this.clock = clock;
    this.entries = [];
    this.balances = new Map();
  }

  deposit(account, amount) {
    if (!(amount > 0)) throw new RangeError('an amount must be above zero');
    this.entries.push({ kind: 'deposit', account, amount, time: this.clock.now() });
    this.balances.set(account, this.balance(account) + amount);
    return this.balance(account);
  }

  withdraw(account, amount) {
    if (!(amount > 0)) throw new RangeError('an amount must be above zero');
    if (this.balance(account) < amount) throw new RangeError('the balance is too small');
    this.entries.push({ kind: 'withdraw', account, amount, time: this.clock.now() });
    this.balances.set(account, this.balance(account) - amount);
    return this.balance(account);
  }

  balance(account) {
    return this.balances.get(account) ?? 0;
  }

  history(account) {
    return this.entries.filter((entry) => entry.account === account);
  }
}
`;

const prose = `Marta had never liked the stairs. They turned twice before the landing, and on each turn a window showed a different piece of
sky, so that climbing felt like being told a story by somebody who kept changing the subject. Today the first window held gulls and the
second a crane, yellow, quite still. She stopped there with her bag against the wall and counted what remained of her money. Eleven notes,
some coins from a country that no longer printed its own. Upstairs a radio murmured about weather in places she would not visit.`;

const reply = `When the door finally opened it was not her brother who stood there but a boy of perhaps twelve, barefoot, holding half an orange.
He looked at her shoes, then past them. "Nobody ordered anything," he announced. Behind him curtains moved; someone coughed twice, and water
ran into what sounded like a metal basin. Marta considered several sentences, each shorter than the last, before choosing none. She put down
everything she carried, slowly, as one does near animals, and asked whether Jonas still kept his bicycle under the kitchen table.`;

export const prompts = {
  summary: { prompt: `${article}\n\nSummarize the article in its own words.\n\n`, answer: summary },
  edit: {
    prompt: `${program}\nRename the method balance to balanceOf.\n\n`,
    answer: program.replaceAll(/\bbalance\(/g, 'balanceOf('),
  },
  prose: { prompt: `${prose}\n\n`, answer: reply },
};
