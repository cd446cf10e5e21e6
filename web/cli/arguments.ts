// Reads the arguments of a command: other spellings, options, and what stands between them. Each
// mistake names the word that is wrong.

import { parseArgs, type ParseArgsConfig } from 'node:util';

import { UsageError, type Values } from './output.js';
import { didYouMean, spelling } from './spellings.js';

export type Options = NonNullable<ParseArgsConfig['options']>;

/** Shorter names of options. */
const kShort: Record<string, string> = { '--ctx': '--ctx-size', '--temp': '--temperature' };

/** The option's long name without dashes. */
function find(options: Options, name: string): string | undefined {
  if (name.startsWith('--')) return name.slice(2) in options ? name.slice(2) : undefined;
  return Object.keys(options).find((long) => options[long]!.short === name.slice(1));
}

interface Word {
  name: string;
  value: string | undefined;
}

/** An argument as an option of the command, or undefined if it is dropped. */
function translate(options: Options, command: string, argument: string): Word | undefined {
  const equals = argument.indexOf('=');
  const given = equals < 0 ? argument : argument.slice(0, equals);
  const value = equals < 0 ? undefined : argument.slice(equals + 1);
  if (['-hf', '-hfr', '--hf-repo'].includes(given)) return { name: 'model', value: `hf:${value}` };
  for (const name of [given, kShort[given], spelling('Renamed', given)]) {
    const found = name && find(options, name);
    if (found) return { name: found, value };
  }
  if (spelling('Fulfilled', given) !== undefined) return undefined;
  const answer = spelling('Other', given);
  if (answer) throw new UsageError(`${given}: ${answer}`);
  if (given.length > 2 && find(options, `-${given}`)) {
    throw new UsageError(`${given}: did you mean -${given}`);
  }
  const names = Object.keys(options).map((name) => `--${name}`);
  throw new UsageError(
    `${given.slice(0, 64)} is not an option of ${command}${didYouMean(given, names)}; ` +
      'sluice-llm --help lists them',
  );
}

/** Values by option, and the arguments that belong to none. */
export function readArguments(
  command: string,
  options: Options,
  given: readonly string[],
): { values: Values; positionals: string[] } {
  const args: string[] = [];
  const seen = new Set<string>();
  const rest = [...given];
  for (let argument = rest.shift(); argument !== undefined; argument = rest.shift()) {
    if (argument === '--') {
      args.push(argument, ...rest);
      break;
    }
    if (!/^-./.test(argument)) {
      args.push(argument);
      continue;
    }
    const repository = ['-hf', '-hfr', '--hf-repo'].includes(argument);
    const word = translate(options, command, repository ? `${argument}=${rest.shift()}` : argument);
    if (!word) continue;
    const { type, multiple } = options[word.name]!;
    if (type === 'boolean' && word.value !== undefined)
      throw new UsageError(`--${word.name} takes no value`);
    const value = type === 'boolean' ? undefined : (word.value ?? rest.shift());
    if (type === 'string' && value === undefined)
      throw new UsageError(`--${word.name} needs a value`);
    if (seen.has(word.name) && type === 'string' && !multiple)
      throw new UsageError(`--${word.name} is given twice`);
    seen.add(word.name);
    args.push(value === undefined ? `--${word.name}` : `--${word.name}=${value}`);
  }
  const parsed = parseArgs({ args, options, allowPositionals: true });
  return { values: parsed.values as Values, positionals: parsed.positionals };
}
