import type { UnitReference } from '../contract/values.ts';

/** tags.yaml as the agent uses it: every default filled in, every name resolved. */
export interface Tags {
  sources: ReadonlyMap<string, Source>;
  tags: ReadonlyMap<string, Tag>;
}

export type Source =
  | { kind: 'modbus'; name: string; url: string; unit: number; everyMs: number }
  | { kind: 'mqtt'; name: string; url: string }
  | { kind: 'host'; name: string; everyMs: number }
  | { kind: 'simulate'; name: string; everyMs: number };

export interface Tag {
  name: string;
  asset: number;
  instrumentation?: number;
  values: ReadonlyMap<string, TagValue>;
}

/** One value of a tag: a key on the platform. Keys and groups are lower-cased already. */
export interface TagValue {
  key: string;
  group?: string;
  unit?: UnitReference;
  /** Absent: programs push it. */
  from?: ValueOrigin;
}

/** Where a value comes from, by the kind of its source. */
export type ValueOrigin =
  | { kind: 'modbus'; source: string; register: ModbusRegister }
  | { kind: 'mqtt'; source: string; topic: string; at?: string }
  | { kind: 'host'; source: string; reading: string }
  | { kind: 'simulate'; source: string; shape: 'sine' | 'walk' | 'step'; low: number; high: number };

export interface ModbusRegister {
  table: 'holding' | 'input' | 'coil' | 'discrete';
  /** As the technician writes it: 30013. */
  address: number;
  type: 'int16' | 'uint16' | 'int32' | 'uint32' | 'float32' | 'float64' | 'bool';
  wordOrder: 'big' | 'little';
  scale: number;
}
