// Loaded before the daemon (`node --import`): the machine has only as many bytes of memory as SMALL_MEMORY says.
import { syncBuiltinESMExports } from 'node:module';
import os from 'node:os';

const bytes = Number(process.env.SMALL_MEMORY);
os.totalmem = () => bytes;
syncBuiltinESMExports();
