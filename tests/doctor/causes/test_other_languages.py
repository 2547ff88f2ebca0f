from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    ("driver_too_old", "我的显卡驱动版本过低，装不了新的torch"),
    ("driver_too_old", "Der Grafiktreiber ist veraltet, torch meldet keine GPU"),
    ("driver_too_old", "El controlador es demasiado antiguo para esta versión de torch"),
    ("driver_too_old", "드라이버 버전이 너무 낮아서 torch가 GPU를 못 씁니다"),
    ("driver_missing_or_not_loaded", "新装的服务器还没有安装驱动，torch找不到GPU"),
    ("driver_missing_or_not_loaded", "Der NVIDIA-Treiber ist nicht geladen"),
    ("driver_missing_or_not_loaded", "После обновления слетел драйвер NVIDIA"),
    ("device_permission_denied", "普通用户检测不到GPU，用root没有问题"),
    ("gpu_hardware_fault", "一开始训练电脑就突然关机，显卡是3080"),
    ("gpu_hardware_fault", "Beim Training startet mein Rechner einfach neu"),
    ("uvm_broken_after_suspend", "笔记本休眠以后 torch.cuda.is_available() 是 False"),
    ("kernel_launch_timeout", "图片大一点屏幕就黑一下，然后 CUDA error: unknown error"),
    ("container_without_gpu_access", "容器里检测不到GPU，宿主机上正常"),
    ("container_lost_gpu_cgroup", "容器跑了几天后找不到GPU，重启容器就好"),
    ("vgpu_unlicensed", "虚拟机里的显卡训练二十分钟以后变慢，重启虚拟机恢复"),
    ("secure_boot_blocks_module", "打开安全启动以后nvidia驱动加载不了"),
    ("gpu_fallen_off_bus", "八卡服务器训练时经常掉卡"),
    ("compute_mode_exclusive", "GPU被管理员设成独占，第二个程序跑不起来"),
]  # fmt: skip

SILENT = [
    ("driver_too_old", "升级驱动以后 torch.cuda.is_available() 是 True，训练正常"),
    ("gpu_hardware_fault", "训练结束后自动关机的脚本怎么写"),
    ("uvm_broken_after_suspend", "训练时电脑不要休眠，损失正常下降"),
    ("kernel_launch_timeout", "训练时黑屏然后重启，CUDA error 来不及看"),
    ("secure_boot_blocks_module", "安全启动已经关闭，驱动正常"),
    ("device_permission_denied", "普通用户也可以训练，损失正常"),
    ("vgpu_unlicensed", "数据加载变慢，GPU利用率低"),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_complaints_in_other_languages(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


@pytest.mark.parametrize(("cause", "text"), SILENT)
def test_the_same_words_where_it_is_not_so(cause, text):
    assert cause not in [f.id for f in report_of(text).findings if f.severity != "info"], ids(text)
