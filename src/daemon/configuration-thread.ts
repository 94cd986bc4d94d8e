/** The thread that reads the configuration for a reload: read, told, over. This file is wiring alone. */
import { parentPort, workerData } from 'node:worker_threads';
import { ConfigurationError, messageOf } from '../base/errors.ts';
import { checkConfiguration, loadConfiguration } from '../config/configuration.ts';
import { SOURCE_KINDS } from '../sources/kinds.ts';
import type { FilesToRead, ReadAnswer } from './configuration-reading.ts';

function answer(): ReadAnswer {
  try {
    const options = { ...(workerData as FilesToRead), kinds: SOURCE_KINDS };
    if (options.identityOnly) return { identity: checkConfiguration(options).identity };
    return { configuration: loadConfiguration(options) };
  } catch (error) {
    return error instanceof ConfigurationError ? { problems: error.problems } : { failure: messageOf(error) };
  }
}

parentPort?.postMessage(answer());
