"""Building templates from `base` and starting sandboxes from them."""

from __future__ import annotations

import json
import traceback
import uuid

import pytest
from e2b import LogEntryEnd, LogEntryStart, TemplateBuildStatus, wait_for_file, wait_for_port
from e2b_code_interpreter import BuildException, SandboxException, TemplateException
from support import assert_error, now, refused, required, unique, until_async
from surface import covers


@pytest.fixture
def build(flavour, garden):
    """Builds a template under a fresh name and removes it when the test is over."""

    async def run(template, name: str | None = None, **options):
        info = await now(flavour.Template.build(template, name or unique("tpl"), **options))
        garden.remove_later(f"/templates/{info.template_id}")
        return info

    return run


async def said(box, command: str, **options) -> str:
    return (await now(box.commands.run(command, **options))).stdout


@covers(
    "Template.build",
    "Template.from_template",
    "Template.exists",
    "Template.alias_exists",
    "TemplateBuilder.run_cmd",
    "TemplateBuilder.set_envs",
    "TemplateBuilder.set_workdir",
    "TemplateBuilder.set_user",
    "TemplateBuilder.copy",
)
async def test_every_kind_of_step(flavour, garden, tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "main.py").write_text("print('main')")
    (tmp_path / "app" / "data").write_bytes(b"\0\1\2")
    (tmp_path / "config").write_text("k=v")
    logs, name = [], unique("tpl")
    template = (
        flavour.Template(file_context_path=str(tmp_path))
        .from_template("base")
        .set_envs({"ONE": "1"})
        .set_envs({"TWO": "$ONE-2"})
        .run_cmd("echo $ONE $TWO $(whoami) $PWD > /home/user/first")
        .run_cmd(["id -un > /root/who", "echo more >> /root/who"], user="root")
        .set_workdir("/srv/work")
        .run_cmd("pwd > here")
        .copy("app", "/srv/work/app")
        .copy("config", "relative.conf", mode=0o600)
        .copy("config", "/opt/into/", user="root")
        .set_user("root")
        .run_cmd("whoami > /srv/last-user")
    )
    assert await now(flavour.Template.exists(name)) is False
    options = {"cpu_count": 2, "memory_mb": 512, "on_build_logs": logs.append}
    info = await now(flavour.Template.build(template, name, **options))
    garden.remove_later(f"/templates/{info.template_id}")
    assert info.name == name and info.template_id.isalnum() and str(uuid.UUID(info.build_id)) == info.build_id
    assert await now(flavour.Template.exists(name)) is True
    assert await now(flavour.Template.alias_exists(name)) is True
    assert isinstance(logs[0], LogEntryStart) and isinstance(logs[-1], LogEntryEnd)
    assert len(logs) > 8 and all(entry.message is not None and entry.level for entry in logs)
    box = await flavour.create(garden, name)
    about = await now(box.get_info())
    assert (about.template_id, about.name) == (info.template_id, name)
    assert (about.cpu_count, about.memory_mb) == (2, 512)
    assert await said(box, "cat /home/user/first") == "1 1-2 user /home/user\n"
    assert await said(box, "cat /root/who", user="root") == "root\nmore\n"
    assert await said(box, "cat /srv/work/here") == "/srv/work\n"
    assert await said(box, "cat /srv/last-user") == "root\n"
    assert await said(box, "python3 app/main.py; stat -c '%a %s' app/data relative.conf") == (
        "main\n644 3\n600 3\n"
    )
    assert await said(box, "stat -c %U relative.conf /opt/into/config app/main.py") == "user\nroot\nuser\n"
    assert await said(box, "whoami; pwd") == "root\n/srv/work\n", "the last USER and WORKDIR are the defaults"
    assert (await now(box.files.write("new", "x"))).path == "/root/new"


@covers("TemplateBuilder.set_start_cmd")
async def test_a_start_command_runs_in_every_sandbox(flavour, garden, build):
    template = (
        flavour.Template()
        .from_template("base")
        .run_cmd("mkdir /home/user/www && echo started > /home/user/www/index.html")
        .set_start_cmd("python3 -m http.server 8077 --directory /home/user/www", wait_for_port(8077))
    )
    info = await build(template)
    for _ in range(2):
        box = await flavour.create(garden, info.name)
        assert await said(box, "curl -s http://127.0.0.1:8077/") == "started\n"


@covers("TemplateBuilder.set_ready_cmd")
async def test_a_build_waits_for_the_ready_command(flavour, garden, build):
    template = flavour.Template().from_template("base").run_cmd("touch /home/user/ready")
    info = await build(template.set_ready_cmd(wait_for_file("/home/user/ready")))
    box = await flavour.create(garden, info.template_id)
    assert await now(box.files.exists("/home/user/ready")) is True


@covers("TemplateBuilder.skip_cache", "Template.skip_cache")
async def test_steps_are_kept_and_can_be_forced(flavour, garden, build):
    salt = unique()

    def stamp(skip: str = ""):
        base = flavour.Template()
        if skip == "all":
            base = base.skip_cache()
        builder = base.from_template("base").run_cmd(f"date +%N > /home/user/a # {salt}")
        if skip == "second":
            builder = builder.skip_cache()
        return builder.run_cmd(f"date +%N > /home/user/b # {salt}")

    async def stamps(template, **options) -> list[str]:
        info = await build(template, **options)
        box = await flavour.create(garden, info.name)
        return (await said(box, "cat /home/user/a /home/user/b")).split()

    first = await stamps(stamp())
    assert await stamps(stamp()) == first, "the same steps are not run again"
    second = await stamps(stamp("second"))
    assert second[0] == first[0] and second[1] != first[1]
    everything = await stamps(stamp("all"))
    assert everything[0] != first[0] and everything[1] not in (first[1], second[1])
    forced = await stamps(stamp(), skip_cache=True)
    assert forced[0] not in (first[0], everything[0])


async def test_changed_files_are_copied_again(flavour, garden, build, tmp_path):
    source = tmp_path / "file"
    for text in ("one", "two"):
        source.write_text(text)
        template = flavour.Template(file_context_path=str(tmp_path)).from_template("base")
        info = await build(template.copy("file", "/home/user/file"))
        box = await flavour.create(garden, info.name)
        assert await now(box.files.read("/home/user/file")) == text


async def test_a_failing_step_is_named(flavour, build):
    logs, name = [], unique("tpl")
    template = (
        flavour.Template()
        .from_template("base")
        .run_cmd("true")
        .run_cmd("echo some words; echo and complaints >&2; exit 7")  # the step that fails
        .run_cmd("true")
    )
    with pytest.raises(BuildException) as caught:
        await build(template, name, on_build_logs=logs.append)
    lines = [frame.line or "" for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert any("the step that fails" in line for line in lines), lines
    assert "7" in str(caught.value)
    told = "\n".join(entry.message for entry in logs)
    assert "some words" in told and "and complaints" in told
    with refused(404, 400):
        await now(flavour.Sandbox.create(name))


@covers("Template.build_in_background", "Template.get_build_status")
async def test_builds_in_the_background(flavour, garden):
    Template = flavour.Template
    good = Template().from_template("base").run_cmd(f"seq 1 250 # {unique()}")
    bad = Template().from_template("base").run_cmd("true").run_cmd("exit 3")
    for template, wanted in ((good, TemplateBuildStatus.READY), (bad, TemplateBuildStatus.ERROR)):
        info = await now(Template.build_in_background(template, unique("tpl"), tags=["one", "two"]))
        garden.remove_later(f"/templates/{info.template_id}")
        assert set(info.tags) >= {"one", "two"}

        async def ended():
            status = await now(Template.get_build_status(info))
            return status.status == wanted and status

        status = await until_async(ended, within=60, what=f"the build is {wanted}")
        assert (status.build_id, status.template_id) == (info.build_id, info.template_id)
        if wanted == TemplateBuildStatus.ERROR:
            assert status.reason.step == "2" and status.reason.message
            continue
        assert 0 < len(status.log_entries) <= 100 and status.reason is None
        seen = []
        while page := (await now(Template.get_build_status(info, logs_offset=len(seen)))).log_entries:
            seen += page
        numbers = [entry.message.strip() for entry in seen if entry.message.strip().isdigit()]
        assert numbers == [str(n) for n in range(1, 251)]


@covers("Template.assign_tags", "Template.remove_tags", "Template.get_tags")
async def test_tags(flavour, garden, build):
    Template, name = flavour.Template, unique("tpl")
    one = await build(Template().from_template("base").run_cmd("echo 1 > /home/user/v"), f"{name}:v1")
    two = await build(Template().from_template("base").run_cmd("echo 2 > /home/user/v"), name, tags=["v2", "new", "default"])
    assert two.template_id == one.template_id and two.build_id != one.build_id
    assigned = await now(Template.assign_tags(f"{name}:v1", ["stable", "lts"]))
    assert set(assigned.tags) >= {"stable", "lts"} and assigned.build_id == one.build_id
    builds = {tag.tag: tag.build_id for tag in await now(Template.get_tags(name))}
    assert builds["v1"] == builds["stable"] == builds["lts"] == one.build_id
    assert builds["v2"] == builds["new"] == builds["default"] == two.build_id
    assert await now(Template.get_tags(one.template_id))
    for tag, wanted in (("stable", "1\n"), ("new", "2\n"), ("default", "2\n")):
        box = await flavour.create(garden, f"{name}:{tag}")
        assert await said(box, "cat /home/user/v") == wanted
        await now(box.kill())
    assert await now(Template.exists(f"{name}:stable")) is True
    await now(Template.assign_tags(f"{name}:v2", "stable"))
    box = await flavour.create(garden, f"{name}:stable")
    assert await said(box, "cat /home/user/v") == "2\n"
    await now(Template.remove_tags(name, ["stable", "lts"]))
    assert "stable" not in {tag.tag for tag in await now(Template.get_tags(name))}
    with refused(404):
        await now(flavour.Sandbox.create(f"{name}:lts"))
    with refused(400, error=TemplateException):
        await now(Template.remove_tags(name, "default"))
    with refused(404, error=TemplateException):
        await now(Template.assign_tags(f"{name}:nothing", "x"))
    with refused(404, error=TemplateException):
        await now(Template.get_tags(unique("missing")))


async def test_a_template_of_a_template(flavour, garden, build):
    base = await build(flavour.Template().from_template("base").run_cmd("echo below > /home/user/below"))
    info = await build(flavour.Template().from_template(base.name).run_cmd("cat below > above"))
    box = await flavour.create(garden, info.name)
    assert await said(box, "cat /home/user/above") == "below\n"


@covers("Template.from_base_image", "Template.from_dockerfile")
async def test_the_packages_own_base_image(flavour, garden, build, tmp_path):
    """`e2bdev/base` needs no registry here."""
    (tmp_path / "file").write_text("copied")
    Template = flavour.Template
    info = await build(Template().from_base_image().run_cmd("echo image > /home/user/from"))
    box = await flavour.create(garden, info.name)
    assert await said(box, "cat /home/user/from; whoami") == "image\nuser\n"
    docker = Template(file_context_path=str(tmp_path)).from_dockerfile(
        "FROM e2bdev/base:latest\nENV WORD=docker\nRUN echo $WORD > /made\nCOPY file /copied\nWORKDIR /w\n"
    )
    info = await build(docker)
    box = await flavour.create(garden, info.name)
    assert await said(box, "cat /made /copied; pwd") == "docker\ncopied/w\n"


@covers("Template.from_image")
async def test_an_image_of_a_registry(flavour, garden, build, tmp_path):
    (tmp_path / "file").write_text("copied")
    image, user = required("ATOLL_REGISTRY_IMAGE"), required("ATOLL_REGISTRY_USER")
    password = required("ATOLL_REGISTRY_PASSWORD")
    Template = flavour.Template
    template = Template(file_context_path=str(tmp_path)).from_image(image, user, password)
    info = await build(template.copy("file", "/copied"))
    box = await flavour.create(garden, info.name)
    assert await now(box.files.read("/copied", user="root")) == "copied"
    with pytest.raises(BuildException) as caught:
        await build(Template().from_image(image, user, "wrong"))
    lines = [frame.line or "" for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert any("from_image" in line for line in lines), "the fault is in the base"


@covers(
    "TemplateBuilder.copy_items",
    "TemplateBuilder.make_dir",
    "TemplateBuilder.make_symlink",
    "TemplateBuilder.rename",
    "TemplateBuilder.remove",
    "TemplateBuilder.git_clone",
)
async def test_the_builders_shorthands(flavour, garden, build, tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    template = (
        flavour.Template(file_context_path=str(tmp_path))
        .from_template("base")
        .copy_items([{"src": ["a", "b"], "dest": "/home/user/in/"}, {"src": "c", "dest": "/home/user/c", "mode": 0o755}])
        .make_dir("/home/user/made", mode=0o700)
        .make_symlink("/home/user/c", "/home/user/link")
        .rename("/home/user/in/a", "/home/user/in/z")
        .remove("/home/user/in/b")
        .run_cmd("git init -q repo && cd repo && git -c user.name=m -c user.email=m@m commit -q --allow-empty -m x")
        .git_clone("file:///home/user/repo", "/home/user/clone")
    )
    box = await flavour.create(garden, (await build(template)).name)
    assert await said(box, "ls in; stat -c %a c made; readlink link; ls -a clone | grep -c git") == (
        "z\n755\n700\n/home/user/c\n1\n"
    )


@covers(
    "TemplateBuilder.pip_install",
    "TemplateBuilder.npm_install",
    "TemplateBuilder.bun_install",
    "TemplateBuilder.apt_install",
    "TemplateBuilder.add_mcp_server",
    "TemplateBuilder.beta_dev_container_prebuild",
    "TemplateBuilder.beta_set_dev_container_start",
    "Template.to_json",
    "Template.to_dockerfile",
    "Template.from_debian_image",
    "Template.from_ubuntu_image",
    "Template.from_fedora_image",
    "Template.from_alpine_image",
    "Template.from_arch_image",
    "Template.from_python_image",
    "Template.from_node_image",
    "Template.from_bun_image",
    "Template.from_aws_registry",
    "Template.from_gcp_registry",
)
def test_what_the_client_makes_alone_is_known_to_the_server(flavour):
    """These never reach the wire as such: all become the five kinds of step and three kinds of source."""
    Template = flavour.Template
    installs = (
        Template().from_template("mcp-gateway").pip_install("x").npm_install("x").bun_install("x").apt_install("x")
        .add_mcp_server("exa")
    )
    container = Template().from_template("devcontainer").beta_dev_container_prebuild("/x")
    images = [
        Template().from_debian_image(),
        Template().from_ubuntu_image(),
        Template().from_fedora_image(),
        Template().from_alpine_image(),
        Template().from_arch_image(),
        Template().from_python_image(),
        Template().from_node_image(),
        Template().from_bun_image(),
        Template().from_aws_registry("i", access_key_id="a", secret_access_key="s", region="r"),
        Template().from_gcp_registry("i", service_account_json={"k": "v"}),
    ]
    for template in (installs, container, container.beta_set_dev_container_start("/x"), *images):
        made = json.loads(Template.to_json(template))
        assert {step["type"] for step in made["steps"]} <= {"RUN", "COPY", "ENV", "WORKDIR", "USER"}
        known = {"steps", "force", "fromImage", "fromTemplate", "fromImageRegistry", "startCmd", "readyCmd"}
        assert set(made) <= known
    assert "FROM" in Template.to_dockerfile(Template().from_base_image().run_cmd("x"))


async def test_bad_names_and_sizes(flavour):
    template = flavour.Template().from_template("base").run_cmd("true")
    for name in ("has space", "UPPER!", "a/b/c:d:e", ""):
        with pytest.raises((BuildException, SandboxException, TemplateException, ValueError, Exception)) as caught:
            await now(flavour.Template.build(template, name))
        assert "500" not in str(caught.value)[:4]
    for options in ({"cpu_count": 0}, {"cpu_count": 3000}, {"memory_mb": 1}, {"memory_mb": 10**9}):
        with refused(400, error=BuildException):
            await now(flavour.Template.build(template, unique("tpl"), **options))
    missing = flavour.Template().from_template(unique("missing")).run_cmd("true")
    with pytest.raises(BuildException):
        await now(flavour.Template.build(missing, unique("tpl")))


async def test_a_template_in_use_is_kept(flavour, garden, build, http):
    info = await build(flavour.Template().from_template("base").run_cmd("true"))
    box = await flavour.create(garden, info.name)
    assert_error(http.delete(f"/templates/{info.template_id}"), 400)
    await now(box.kill())
    assert http.delete(f"/templates/{info.template_id}").status_code == 204
    assert_error(http.delete(f"/templates/{info.template_id}"), 404)
    assert await now(flavour.Template.exists(info.name)) is False


async def test_templates_over_plain_http(flavour, build, http):
    """What the command line of the vendor asks for."""
    info = await build(flavour.Template().from_template("base").run_cmd("true"))
    listed = {template["templateID"]: template for template in http.get("/templates").json()}
    mine = listed[info.template_id]
    assert mine["buildStatus"] == "ready" and mine["buildID"] == info.build_id
    assert info.name in mine["aliases"] and mine["public"] is False
    about = http.get(f"/templates/{info.template_id}").json()
    assert [made["buildID"] for made in about["builds"]] == [info.build_id]
    logs = http.get(f"/templates/{info.template_id}/builds/{info.build_id}/logs").json()["logs"]
    assert logs and {"timestamp", "message", "level"} <= set(logs[0])
