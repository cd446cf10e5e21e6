// What `sluice` answers to wrong inputs. Needs build/native.
import { test } from 'node:test';
import { inRoot } from '../../web/scripts/lib.mjs';
import { testLostOutput, testRows } from './wrong-inputs.mjs';

const program = [inRoot('build', 'native', 'sluice')];
testRows(test, 'native', program);
testLostOutput(test, program);
