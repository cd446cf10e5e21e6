// WGSL expressions for model::Activation and model::Unary, which use the functions of
// kernels/wgsl/functions.wgsl.

/** `of`: gate, up, and xIELU's four parameters. */
export function activations(
  kind: number,
  of: readonly [string, string, string, string, string, string],
): string {
  const [g, u, ...xielu] = of;
  const all = [
    `silu(${g}) * ${u}`,
    `gelu_tanh(${g}) * ${u}`,
    `gelu_tanh(${g})`,
    `relu(${g}) * ${u}`,
    `relu(${g}) * relu(${g})`,
    `clamped_swiglu(${g}, ${u})`,
    `gelu_erf(${g})`,
    `bounded_tanh(${g})`,
    `relu(${g}) * relu(${g}) * ${u}`,
    `xielu(${g}, ${xielu.join(', ')})`,
    `relu(${g})`,
  ];
  const found = all[kind];
  if (!found) throw new Error(`no kernel computes activation ${kind}`);
  return found;
}

export function unaries(kind: number, x: string): string {
  const bounded = (y: string) => `exp(clamp(${y}, -87.0, 88.0))`;
  const all = [
    x,
    `silu(${x})`,
    `sigmoid(${x})`,
    `bounded_tanh(${x})`,
    `softplus(${x})`,
    `relu(${x}) * relu(${x})`,
    bounded(`-${bounded(x)}`),
    `exp(-0.60653066 * sigmoid(${x}))`,
  ];
  const found = all[kind];
  if (!found) throw new Error(`no kernel computes function ${kind}`);
  return found;
}
