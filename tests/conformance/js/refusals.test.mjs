// What the package offers and this server refuses: isolation and the credential vault.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createDefaultAdapterFactory } from "@alibaba-group/opensandbox";
import { config, covers, egressDefault, refused, shared } from "./support.mjs";

describe("refusals", () => {
  const suite = shared();

  const request = { workspace: { path: "/tmp" } };
  // The package reports isolation failures as plain errors that quote the status.
  const unavailable = (call) => assert.rejects(call, /\b503\b/);

  test(covers(
    "IsolationService.capabilities", "IsolationService.create", "IsolationService.attach",
    "IsolationService.list", "IsolationService.runOnce", "IsolationService.withSession",
  ), async () => {
    const { box } = suite;
    const about = await box.isolation.capabilities();
    assert.equal(about.available, false);
    assert.ok(about.message);
    await unavailable(() => box.isolation.create(request));
    await unavailable(() => box.isolation.attach("nobody"));
    await unavailable(() => box.isolation.list());
    await unavailable(() => box.isolation.runOnce("echo no", "/tmp"));
    await unavailable(() => box.isolation.withSession(request, () => assert.fail("no session")));
  });

  test(covers(
    "CredentialVault.create", "CredentialVault.get", "CredentialVault.patch", "CredentialVault.delete",
    "CredentialVault.listCredentials", "CredentialVault.getCredential", "CredentialVault.listBindings",
    "CredentialVault.getBinding",
  ), async () => {
    const { box } = suite;
    const vault = box.credentialVault;
    const statuses = [400, 404, 405, 409, 501, 503];
    await refused(() => vault.create({ credentials: [], bindings: [] }), statuses);
    await refused(() => vault.get(), statuses);
    await refused(() => vault.patch({ credentials: { delete: ["x"] } }), statuses);
    await refused(() => vault.delete(), statuses);
    await refused(() => vault.listCredentials(), statuses);
    await refused(() => vault.getCredential("x"), statuses);
    await refused(() => vault.listBindings(), statuses);
    await refused(() => vault.getBinding("x"), statuses);
  });

  test(covers("Egress.getPolicy", "Egress.patchRules", "Egress.deleteRules"), async () => {
    const { box } = suite;
    const { endpoint, headers } = await box.getEndpoint(18080);
    const connectionConfig = config().withTransportIfMissing();
    const { egress } = createDefaultAdapterFactory().createEgressStack({
      connectionConfig,
      egressBaseUrl: `http://${endpoint}`,
      endpointHeaders: headers,
    });
    assert.equal((await egress.getPolicy()).defaultAction, egressDefault);
    const statuses = [400, 405, 409, 501, 503];
    await refused(() => egress.patchRules([{ action: "deny", target: "example.com" }]), statuses);
    await refused(() => egress.deleteRules(["example.com"]), statuses);
    await connectionConfig.closeTransport();
  });
});
