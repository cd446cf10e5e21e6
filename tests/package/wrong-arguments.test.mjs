// What `npx sluice-llm` answers to wrong inputs: the table of the native program.
import { test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { testLostOutput, testRows } from '../tools/wrong-inputs.mjs';

const program = [process.execPath, inRoot('dist', 'cli.js')];
testRows(test, 'node', program);
testLostOutput(test, program);
