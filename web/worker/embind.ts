// Embind's side in JavaScript: C++ registers its types, its classes and their functions, and holds
// JavaScript values by handles. These are the imports of Emscripten 3.1.6; web/scripts/wasm.mjs
// fails if a binary needs others. The binding uses neither overloads, base classes, smart pointers,
// wide strings nor 64-bit integers, and types are resolved at the first call.

import { noRoom, type Exports, type Heap } from './heap.js';

/** How values of a C++ type cross the border. A wire value is a number. */
interface Type {
  isVoid?: boolean;
  fromWire(wire: number): unknown;
  /** `owned`: addresses to free after the call. */
  toWire(value: unknown, owned: number[]): number;
  /** The value at an address, where arguments of JavaScript functions lie. */
  read(at: number): unknown;
}

interface Class {
  prototype: Record<string, unknown>;
  create?(...values: unknown[]): object;
}

const kViews = [
  Int8Array,
  Uint8Array,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Float32Array,
  Float64Array,
];
const kArgument = 8; // bytes of an argument of a JavaScript function
const encoder = new TextEncoder();

/** Values whose handles are their places here, from 1 on. */
const kConstants: unknown[] = [{}, undefined, null, true, false];

/** JavaScript values that C++ holds. */
class Handles {
  readonly #held: { value: unknown; count: number }[] = [];
  readonly #free: number[] = [];

  constructor() {
    for (const value of kConstants) this.#held.push({ value, count: 1 });
  }
  value(handle: number): unknown {
    return this.#held[handle]!.value;
  }
  of(value: unknown): number {
    const constant = kConstants.indexOf(value);
    if (constant > 0) return constant;
    const handle = this.#free.pop() ?? this.#held.length;
    this.#held[handle] = { value, count: 1 };
    return handle;
  }
  hold(handle: number): void {
    if (handle >= kConstants.length) this.#held[handle]!.count++;
  }
  drop(handle: number): void {
    const held = this.#held[handle]!;
    if (handle < kConstants.length || --held.count) return;
    held.value = undefined;
    this.#free.push(handle);
  }
  take(handle: number): unknown {
    const value = this.value(handle);
    this.drop(handle);
    return value;
  }
}

/** Imports of the engine's own thread, and the classes that C++ has registered, by name. */
export function embind(heap: Heap, exports: () => Exports) {
  const types = new Map<number, Type>();
  const classes = new Map<number, Class>();
  const named: Record<string, new (...values: unknown[]) => object> = {};
  const handles = new Handles();
  const methodCallers: ((of: unknown, method: string, owned: number[], at: number) => number)[] =
    [];

  const text = (address: number): string => heap.text(address);
  const tableEntry = (index: number) =>
    exports().__indirect_function_table.get(index) as (...wires: number[]) => number;
  const typesAt = (count: number, at: number): Type[] =>
    Array.from({ length: count }, (_, i) => types.get(heap.word(at + 4 * i))!);
  const free = (owned: number[]): void => owned.forEach((address) => exports().free(address));
  /** Shows C++ a list of addresses to free later. */
  const lend = (at: number): number[] => {
    const owned: number[] = [];
    heap.setWord(at, handles.of(owned));
    return owned;
  };
  const viaPointer = (fromWire: Type['fromWire']): Type['read'] => {
    return (at) => fromWire(heap.word(at));
  };

  /** A JavaScript function that calls C++. `self`: a method, whose second type is the object's. */
  function caller(
    name: string,
    count: number,
    typesFrom: number,
    invoker: number,
    first: number,
    self: boolean,
  ) {
    let list: Type[] | undefined;
    const call = tableEntry(invoker);
    return function (this: unknown, ...values: unknown[]): unknown {
      const [result, ...takes] = (list ??= typesAt(count, typesFrom));
      const given = self ? [this, ...values] : values;
      if (given.length !== takes.length)
        throw Error(`${name} takes ${takes.length - +self} arguments`);
      const owned: number[] = [];
      const wires = takes.map((type, i) => type.toWire(given[i], owned));
      const stack = exports().stackSave();
      let made: number;
      try {
        made = call(first, ...wires);
      } catch (error) {
        exports().stackRestore(stack); // because the next calls need it
        throw error;
      }
      free(owned);
      return result!.fromWire(made);
    };
  }

  function number(raw: number, bytes: number, isFloat: boolean, signed: boolean): void {
    const read = (at: number): number => {
      const { words } = heap;
      const from = at >>> 0;
      if (isFloat) return bytes === 4 ? words.getFloat32(from, true) : words.getFloat64(from, true);
      if (bytes === 1) return signed ? words.getInt8(from) : words.getUint8(from);
      if (bytes === 2) return signed ? words.getInt16(from, true) : words.getUint16(from, true);
      return signed ? words.getInt32(from, true) : words.getUint32(from, true);
    };
    const unused = 32 - 8 * bytes;
    const plain = isFloat || signed;
    types.set(raw, {
      fromWire: (wire) => (plain ? wire : (wire << unused) >>> unused),
      toWire: (value) => (plain ? (value as number) : (value as number) >>> 0),
      read,
    });
  }

  const imports = {
    _embind_register_void: (raw: number) =>
      types.set(raw, { isVoid: true, fromWire() {}, toWire: () => 0, read() {} }),
    _embind_register_bool(raw: number, _name: number, _bytes: number, yes: number, no: number) {
      types.set(raw, {
        fromWire: Boolean,
        toWire: (value) => (value ? yes : no),
        read: (at) => heap.bytes[at >>> 0] !== 0,
      });
    },
    _embind_register_integer: (raw: number, _name: number, bytes: number, least: number) =>
      number(raw, bytes, false, least !== 0),
    _embind_register_float: (raw: number, _name: number, bytes: number) =>
      number(raw, bytes, true, true),
    _embind_register_bigint() {},
    _embind_register_std_wstring() {},
    // A string is its length and its bytes, allocated by whoever passes it.
    _embind_register_std_string(raw: number) {
      const fromWire = (at: number): string => {
        const value = heap.text(at + 4, heap.word(at));
        exports().free(at);
        return value;
      };
      types.set(raw, {
        fromWire,
        toWire(value, owned) {
          if (typeof value !== 'string') throw Error('a string is needed');
          const bytes = encoder.encode(value);
          const at = exports().malloc(5 + bytes.length) >>> 0 || noRoom();
          heap.setWord(at, bytes.length);
          heap.bytes.set(bytes, at + 4);
          owned.push(at);
          return at;
        },
        read: viaPointer(fromWire),
      });
    },
    _embind_register_emval(raw: number) {
      const fromWire = (handle: number): unknown => handles.take(handle);
      types.set(raw, {
        fromWire,
        toWire: (value) => handles.of(value),
        read: viaPointer(fromWire),
      });
    },
    _embind_register_memory_view(raw: number, element: number) {
      const View = kViews[element]!;
      const fromWire = (at: number) =>
        new View(heap.memory.buffer, heap.word(at + 4), heap.word(at));
      types.set(raw, { fromWire, toWire: () => 0, read: fromWire });
    },
    _embind_register_class(...given: number[]) {
      const name = text(given[10]!);
      const destroy = tableEntry(given[12]!);
      const made: Class = {
        prototype: {
          delete(this: { ptr: number }) {
            destroy(this.ptr);
            this.ptr = 0;
          },
        },
      };
      const type: Type = {
        fromWire: (ptr) => Object.assign(Object.create(made.prototype), { ptr }) as object,
        toWire(value) {
          const { ptr } = value as { ptr: number };
          if (!ptr) throw Error(`${name} is deleted`);
          return ptr;
        },
        read() {},
      };
      classes.set(given[0]!, made);
      for (const raw of given.slice(0, 3)) types.set(raw, type); // T, T* and const T*
      named[name] = function (...values: unknown[]) {
        return made.create!(...values);
      } as unknown as new () => object;
    },
    _embind_register_class_constructor(
      raw: number,
      count: number,
      typesFrom: number,
      _signature: number,
      invoker: number,
      make: number,
    ) {
      classes.get(raw)!.create = caller('new', count, typesFrom, invoker, make, false) as never;
    },
    _embind_register_class_function(
      raw: number,
      nameAt: number,
      count: number,
      typesFrom: number,
      _signature: number,
      invoker: number,
      context: number,
    ) {
      const name = text(nameAt);
      classes.get(raw)!.prototype[name] = caller(name, count, typesFrom, invoker, context, true);
    },
    _emval_incref: (handle: number) => handles.hold(handle),
    _emval_decref: (handle: number) => handles.drop(handle),
    _emval_new_array: () => handles.of([]),
    _emval_new_object: () => handles.of({}),
    _emval_new_cstring: (at: number) => handles.of(text(at)),
    _emval_take_value: (raw: number, at: number) => handles.of(types.get(raw)!.read(at)),
    _emval_new(made: number, count: number, typesFrom: number, at: number) {
      const Made = handles.value(made) as new (...values: unknown[]) => unknown;
      return handles.of(new Made(...argumentsAt(typesAt(count, typesFrom), at)));
    },
    _emval_get_global: (at: number) =>
      handles.of(at ? (globalThis as Record<string, unknown>)[text(at)] : globalThis),
    _emval_get_property: (of: number, key: number) =>
      handles.of((handles.value(of) as Record<string, unknown>)[handles.value(key) as string]),
    _emval_set_property(of: number, key: number, value: number) {
      const object = handles.value(of) as Record<string, unknown>;
      object[handles.value(key) as string] = handles.value(value);
    },
    _emval_is_number: (handle: number) => typeof handles.value(handle) === 'number',
    _emval_is_string: (handle: number) => typeof handles.value(handle) === 'string',
    _emval_as: (handle: number, raw: number, ownedAt: number) =>
      types.get(raw)!.toWire(handles.value(handle), lend(ownedAt)),
    _emval_get_method_caller(count: number, typesFrom: number) {
      const [result, ...takes] = typesAt(count, typesFrom);
      methodCallers.push((of, method, owned, at) => {
        const object = of as Record<string, (...values: unknown[]) => unknown>;
        const made = object[method]!(...argumentsAt(takes, at));
        return result!.isVoid ? 0 : result!.toWire(made, owned);
      });
      return methodCallers.length - 1;
    },
    _emval_call_method: (id: number, of: number, name: number, ownedAt: number, at: number) =>
      methodCallers[id]!(handles.value(of), text(name), lend(ownedAt), at),
    _emval_call_void_method(id: number, of: number, name: number, at: number) {
      methodCallers[id]!(handles.value(of), text(name), [], at);
    },
    _emval_run_destructors: (handle: number) => free(handles.take(handle) as number[]),
  };
  function argumentsAt(takes: readonly Type[], at: number): unknown[] {
    return takes.map((type, i) => type.read(at + kArgument * i));
  }
  return { imports, classes: named };
}
