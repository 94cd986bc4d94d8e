import { BinaryWriter } from '@bufbuild/protobuf/wire';

const BOOLEAN = 11;

/** The command by which a node is asked for its birth certificate (Eclipse Sparkplug 3.0, "Node Control/Rebirth"). */
export function rebirthCommand(nowMs: number): Uint8Array {
  const metric = new BinaryWriter()
    .tag(1, 2)
    .string('Node Control/Rebirth')
    .tag(3, 0)
    .uint64(BigInt(nowMs))
    .tag(4, 0)
    .uint32(BOOLEAN)
    .tag(14, 0)
    .bool(true)
    .finish();
  return new BinaryWriter().tag(1, 0).uint64(BigInt(nowMs)).tag(2, 2).bytes(metric).finish();
}
