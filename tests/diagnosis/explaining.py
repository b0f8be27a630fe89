"""What a semantics expects of a scene, by itself."""

from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.expected import explains
from flashverify.outputs import KERNELS


def explained(name, scene):
    """Whether the semantics expects what each kernel returned, and whether clearly."""
    failing = scene.failing()
    semantics = next(each for each in SEMANTICS if each.name == name)
    assert set(failing) <= set(semantics.outputs)
    clearly = False
    for kernel in KERNELS:
        part = frozenset(kernel) & frozenset(failing)
        fits = [each for each in semantics.build(scene) if scene.agrees(each, part)] if part else [None]
        assert fits, (name, scene.case, part)
        for each in fits if part else ():
            expected = scene.expect(each, part)
            clearly |= any(
                explains(expected[n], scene.right[n], scene.outputs[n], failing[n], clearly=True) for n in part
            )
    return clearly
