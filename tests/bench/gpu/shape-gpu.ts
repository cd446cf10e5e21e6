// The gpu.js of bench:gpu's shapes: that of the package with synthetic weights (synthetic-upload.ts)
// and measurements (trace.ts).
import './trace.js';

export { advise, findGpu } from '../../../web/gpu/gpu.js';
