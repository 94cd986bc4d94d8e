import type { Command } from 'commander';
import { ConfigurationError, codeOf, UsageError } from '../../base/errors.ts';
import { readRegularFileSync } from '../../base/regular-file.ts';
import { configurationDirectory, readSettingsLeniently } from '../../config/configuration.ts';
import { problemLine } from '../../config/problem.ts';
import type { PersonClient } from '../../platform/grants/person.ts';

/** How a person's token was had, and so how it is renewed and revoked. */
export type SignInFlow = 'pkce' | 'web';

/** What people's verbs need of agent.env: the addresses and CLIENT_ID. The technical user's credentials are not read. */
export interface PersonSettings {
  /** The configuration folder, for what else stands there. */
  directory: string;
  platformUrl: string;
  identityUrl: string;
  clientId: string;
  /** Absent where none is configured, or where this user cannot read it. */
  clientSecret: string | undefined;
  /** PKCE_CHALLENGE. */
  pkceChallenge: 'base64url' | 'base64' | undefined;
  apiKeyHeader: string | undefined;
  /** PEM text of PLATFORM_CA. */
  caPem: string | undefined;
  httpsProxy: string | undefined;
  noProxy: string | undefined;
}

/** Settings whose problems stop a person's verb; others are the daemon's business. */
const NEEDED = /\b(PLATFORM_URL|IDENTITY_URL|CLIENT_ID|PLATFORM_CA|HTTPS_PROXY|API_KEY_HEADER)\b|agent\.env.*the file /;

/** Reads them, whatever is wrong with the rest. Throws `ConfigurationError` with the problems that matter here. */
export function personSettings(program: Command, environment: NodeJS.ProcessEnv): PersonSettings {
  const directory = configurationDirectory(program.opts<{ config?: string }>().config, environment);
  const { settings, problems } = readSettingsLeniently({ directory, environment });
  const { platformUrl, identityUrl, clientId } = settings;
  const wrong = problems.filter((one) => one.severity === 'error').map(problemLine);
  const stopping = wrong.filter((line) => NEEDED.test(line));
  if (platformUrl === undefined || identityUrl === undefined || clientId === undefined) {
    throw new ConfigurationError(stopping.length > 0 ? stopping : wrong);
  }
  return {
    directory,
    platformUrl,
    identityUrl,
    clientId,
    clientSecret: settings.clientSecret,
    pkceChallenge: settings.pkceChallenge,
    apiKeyHeader: settings.apiKeyHeader,
    caPem: settings.platformCa === undefined ? undefined : authorityIn(settings.platformCa),
    httpsProxy: settings.httpsProxy,
    noProxy: settings.noProxy,
  };
}

/** docs/interface.md: PKCE unless a client secret is given. `asked` is the option that says otherwise. */
export function flowOf(settings: PersonSettings, asked: SignInFlow | undefined): SignInFlow {
  if (asked === 'web' && settings.clientSecret === undefined) {
    throw new UsageError('the web flow needs CLIENT_SECRET', 'Set it, or leave out --web-flow to sign in with PKCE.');
  }
  return asked ?? (settings.clientSecret === undefined ? 'pkce' : 'web');
}

/** The client as a flow presents it. Throws `UsageError` where the flow needs a secret that is not there any more. */
export function clientOf(settings: PersonSettings, flow: SignInFlow): PersonClient {
  if (flow === 'pkce') return { clientId: settings.clientId, challengeEncoding: settings.pkceChallenge };
  if (settings.clientSecret === undefined) {
    throw new UsageError(
      'this sign-in was made with CLIENT_SECRET, which is not readable now',
      'Set CLIENT_SECRET, or sign in anew: tagferry login --pkce.',
    );
  }
  return { clientId: settings.clientId, clientSecret: settings.clientSecret };
}

function authorityIn(path: string): string {
  try {
    return readRegularFileSync(path).bytes.toString();
  } catch (error) {
    throw new ConfigurationError([
      `PLATFORM_CA: ${path} cannot be read (${codeOf(error)}), name a PEM file that this user may read`,
    ]);
  }
}
