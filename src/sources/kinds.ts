/** All source kinds. Modules that read a configuration pass this list to `config/`. */
import { CSV } from './csv/csv-kind.ts';
import { EXEC } from './exec/exec-kind.ts';
import { HOST } from './host/host-kind.ts';
import { MODBUS } from './modbus/modbus-kind.ts';
import { MQTT } from './mqtt/mqtt-kind.ts';
import { NATS } from './nats/nats-kind.ts';
import { OPCUA } from './opcua/opcua-kind.ts';
import { SIMULATE } from './simulate/simulate-kind.ts';
import type { SourceKind } from './source-kind.ts';
import { SPARKPLUG } from './sparkplug/sparkplug-kind.ts';

export const SOURCE_KINDS: readonly SourceKind[] = [MODBUS, MQTT, NATS, SPARKPLUG, OPCUA, CSV, EXEC, HOST, SIMULATE];
