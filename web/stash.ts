// Where the KV caches of idle sessions wait: in memory while they are small, else in the browser's
// file store or a temporary directory. What a killed page left behind is swept a day later.

/** Keeps byte strings by name. */
export interface Stash {
  write(name: string, bytes: Uint8Array): Promise<void>;
  read(name: string): Promise<Uint8Array>;
  remove(name: string): Promise<void>;
  names(): Promise<string[]>;
}

const kInMemory = 32 << 20;
const kStaleMs = 24 * 3600_000;

/** The origin's private files; null where they cannot be written from here. */
export async function opfsStash(): Promise<Stash | null> {
  const root = await globalThis.navigator?.storage?.getDirectory?.().catch(() => null);
  if (!root || !('createWritable' in FileSystemFileHandle.prototype)) return null;
  const folder = await root.getDirectoryHandle('sluice-sessions', { create: true });
  return {
    async write(name, bytes) {
      const file = await (await folder.getFileHandle(name, { create: true })).createWritable();
      await file.write(bytes as Uint8Array<ArrayBuffer>);
      await file.close();
    },
    async read(name) {
      return new Uint8Array(await (await (await folder.getFileHandle(name)).getFile()).arrayBuffer());
    },
    remove: (name) => folder.removeEntry(name),
    async names() {
      const names: string[] = [];
      for await (const name of (folder as any).keys() as AsyncIterable<string>) names.push(name);
      return names;
    },
  };
}

/** A byte string that waits somewhere. */
export interface Parked {
  readonly bytes: number;
  /** The bytes; they are then no longer kept. */
  take(): Promise<Uint8Array>;
  copy(): Promise<Uint8Array>;
  drop(): Promise<void>;
}

/** One engine's parking place. */
export class Parking {
  private inMemory = 0;
  private stash: Promise<Stash | null> | null = null;

  constructor(
    private readonly open: () => Promise<Stash | null>,
    private readonly memoryLimit = kInMemory,
  ) {}

  async park(bytes: Uint8Array): Promise<Parked> {
    if (this.inMemory + bytes.length <= this.memoryLimit) return this.hold(bytes);
    this.stash ??= this.sweep();
    const stash = await this.stash;
    if (!stash) return this.hold(bytes);
    const name = `${Date.now()}-${crypto.randomUUID()}`;
    try {
      await stash.write(name, bytes);
    } catch {
      await stash.remove(name).catch(() => {});
      return this.hold(bytes); // no room in the store
    }
    const drop = (): Promise<void> => stash.remove(name).catch(() => {});
    return {
      bytes: bytes.length,
      copy: () => stash.read(name),
      take: async () => {
        const out = await stash.read(name);
        await drop();
        return out;
      },
      drop,
    };
  }

  private hold(bytes: Uint8Array): Parked {
    this.inMemory += bytes.length;
    const drop = async (): Promise<void> => {
      this.inMemory -= bytes.length;
    };
    return {
      bytes: bytes.length,
      copy: async () => bytes.slice(),
      take: async () => {
        await drop();
        return bytes;
      },
      drop,
    };
  }

  private async sweep(): Promise<Stash | null> {
    const stash = await this.open().catch(() => null);
    for (const name of (await stash?.names().catch(() => [])) ?? []) {
      if (Date.now() - Number.parseInt(name, 10) > kStaleMs) await stash!.remove(name).catch(() => {});
    }
    return stash;
  }
}
