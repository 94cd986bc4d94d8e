/** Entry point of the thread that reads the configuration for a reload. */
import { parentPort, workerData } from 'node:worker_threads';
import { ConfigurationError, messageOf } from '../base/errors.ts';
import { checkConfiguration, loadConfiguration } from '../config/configuration.ts';
import { ACTION_KINDS } from '../reactions/actions.ts';
import { SOURCE_KINDS } from '../sources/kinds.ts';
import type { FilesToRead, ReadAnswer } from './configuration-reading.ts';

function answer(): ReadAnswer {
  try {
    const options = { ...(workerData as FilesToRead), kinds: SOURCE_KINDS, actions: ACTION_KINDS };
    if (options.identityOnly) return { identity: checkConfiguration(options).identity };
    return { configuration: loadConfiguration(options) };
  } catch (error) {
    return error instanceof ConfigurationError ? { problems: error.problems } : { failure: messageOf(error) };
  }
}

parentPort?.postMessage(answer());
