import type { ModbusAddress } from './connection.ts';
import type { ModbusRegister } from './register.ts';

export interface ModbusSpec {
  address: ModbusAddress;
  /** The number of the device on its line, or behind its gateway. */
  unit: number;
  /** At once, to its host and port. */
  connections: number;
  /** How long an answer may take. */
  timeoutMs: number;
}

export interface ModbusValue {
  register: ModbusRegister;
}
