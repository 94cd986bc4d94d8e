/** Where the first value comes from, as a person names it. */
export interface SourceAddress {
  kind: 'modbus' | 'mqtt';
  /** Of the source in tags.yaml. */
  name: string;
  members: Record<string, unknown>;
  /** Of a value's place there. */
  example: string;
}

/** `tcp://host:port` and `rtu:/dev/…` are Modbus devices, `mqtt://` and `mqtts://` brokers. */
export function readSourceAddress(text: string): SourceAddress | { reason: string; instead: string } {
  const address = text.replace(/^modbus:\/\//, 'tcp://');
  if (/^tcp:\/\/[^\s/]+$/.test(address) || /^rtu:\/\S+$/.test(address)) {
    return { kind: 'modbus', name: 'plc1', members: { modbus: address, unit: 1, every: '1s' }, example: 'holding 0' };
  }
  if (/^(mqtts?|wss?):\/\/[^\s@]+$/.test(address)) {
    return { kind: 'mqtt', name: 'broker', members: { mqtt: address }, example: 'site/ft101' };
  }
  if (/^mqtts?:\/\/\S+@/.test(address)) {
    return { reason: 'has a password in it', instead: 'leave it out, and add username and password_file in tags.yaml' };
  }
  return {
    reason: `"${text}" is no address of a source`,
    instead: 'write tcp://host:502, rtu:/dev/ttyUSB0 or mqtt://host',
  };
}
