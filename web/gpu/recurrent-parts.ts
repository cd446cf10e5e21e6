// Entry of gpu-recurrent.js: what models with recurrent layers need on the GPU.

export { recurrentOps } from './recurrent-ops.js';
export { GpuRecurrentStates } from './recurrent-states.js';
