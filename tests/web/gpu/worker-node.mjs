// The package's worker, in which Dawn polls less often.
import './polling.mjs';
import '../../../dist/worker-node.js';
