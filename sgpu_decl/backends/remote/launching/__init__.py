"""From a launch to its folder on a platform: uploads, markers, references."""
