// Subgroup sums assume that invocation i is number i % size of subgroup i / size. WebGPU does not
// guarantee that, so it is tested with the workgroup sizes of the kernels.
const probe = (size: number) => `enable subgroups;
@group(0) @binding(0) var<storage, read_write> linear: array<u32>;
@compute @workgroup_size(${size})
fn main(@builtin(local_invocation_index) lane: u32,
        @builtin(subgroup_invocation_id) place: u32, @builtin(subgroup_size) size: u32) {
  let first = subgroupBroadcastFirst(lane);
  linear[lane] = select(0u, 1u, place == lane % size && first == lane / size * size);
}`;

export async function linearSubgroups(device: GPUDevice): Promise<boolean> {
  for (const size of [64, 256]) {
    const module = device.createShaderModule({ label: 'subgroups', code: probe(size) });
    const pipeline = await device.createComputePipelineAsync({
      layout: 'auto',
      compute: { module },
    });
    const written = device.createBuffer({
      size: 4 * size,
      usage: 0x80 | 0x4 /* storage, copy source */,
    });
    const read = device.createBuffer({
      size: 4 * size,
      usage: 0x1 | 0x8 /* map, copy destination */,
    });
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(
      0,
      device.createBindGroup({
        layout: pipeline.getBindGroupLayout(0),
        entries: [{ binding: 0, resource: { buffer: written } }],
      }),
    );
    pass.dispatchWorkgroups(1);
    pass.end();
    encoder.copyBufferToBuffer(written, 0, read, 0, 4 * size);
    device.queue.submit([encoder.finish()]);
    await read.mapAsync(1 /* read */);
    const linear = new Uint32Array(read.getMappedRange()).every((one) => one === 1);
    written.destroy();
    read.destroy();
    if (!linear) return false;
  }
  return true;
}
