// Preloaded into the agent (`node --import`). Sets the machine's memory to SMALL_MEMORY bytes.
import { syncBuiltinESMExports } from 'node:module';
import os from 'node:os';

const bytes = Number(process.env.SMALL_MEMORY);
os.totalmem = () => bytes;
syncBuiltinESMExports();
