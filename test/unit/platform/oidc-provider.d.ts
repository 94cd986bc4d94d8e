/** The part of `oidc-provider` that the tests use, because the package contains no types. */
declare module 'oidc-provider' {
  interface Token {
    readonly clientId: string;
    readonly isValid: boolean;
    readonly expiration: number;
    readonly tokenType: string;
    save(): Promise<string>;
  }

  interface TokenModel {
    new (properties: Record<string, unknown>): Token;
    find(value: string): Promise<Token | undefined>;
  }

  interface Client {
    readonly clientId: string;
    readonly clientSecret?: string;
    grantTypeAllowed(grantType: string): boolean;
  }

  interface GrantContext {
    body: unknown;
    oidc: { client: Client; params: Record<string, string | undefined> };
  }

  export class Provider {
    constructor(issuer: string, configuration: Record<string, unknown>);
    readonly AccessToken: TokenModel;
    readonly RefreshToken: TokenModel;
    readonly Grant: new (properties: {
      clientId: string;
      accountId: string;
    }) => { save(): Promise<string> };
    readonly Client: { find(clientId: string): Promise<Client | undefined> };
    registerGrantType(name: string, handler: (ctx: GrantContext) => Promise<void>, parameters: readonly string[]): void;
    callback(): (
      request: import('node:http').IncomingMessage,
      response: import('node:http').ServerResponse,
    ) => Promise<void>;
  }

  export const errors: { readonly InvalidGrant: new (detail: string) => Error };
}
