// Entry of gpu-recurrent.js: what models with recurrent layers need on the GPU.

export { GpuRecurrentStates } from './recurrent-states.js';
